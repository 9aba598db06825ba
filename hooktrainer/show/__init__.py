"""Summaries, curves, pages and films of runs, read from their directories.

Summaries and comparisons need no PyTorch. Policies are played in separate environments and with
seeds of their own, so the run is not affected.
"""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .curves import Band as Band
    from .curves import Curve as Curve
    from .curves import band as band
    from .curves import read_curves as read_curves
    from .gallery.exhibits import Exhibit as Exhibit
    from .gallery.exhibits import Picture as Picture
    from .gallery.exhibits import make_exhibits as make_exhibits
    from .gallery.film import Film as Film
    from .gallery.film import decode as decode
    from .gallery.film import encode as encode
    from .gallery.film import film_policies as film_policies
    from .gallery.film import side_by_side as side_by_side
    from .gallery.make import Gallery as Gallery
    from .gallery.make import gallery_page as gallery_page
    from .gallery.make import make_gallery as make_gallery
    from .gallery.make import write_board as write_board
    from .gallery.recording import Recording as Recording
    from .gallery.recording import View as View
    from .gallery.recording import record_episodes as record_episodes
    from .pack import pack_policy as pack_policy
    from .report.analysis import analyze as analyze
    from .report.grouping import Group as Group
    from .report.grouping import group_runs as group_runs
    from .report.grouping import lineage as lineage
    from .report.report_page import report_page as report_page
    from .report.study import SeedCurve as SeedCurve
    from .report.study import Study as Study
    from .report.study import TaskStudy as TaskStudy
    from .report.study import read_study as read_study
    from .report.summary import RunSummary as RunSummary
    from .report.summary import summarize as summarize
    from .results.result_rows import read_digest as read_digest
    from .results.result_rows import read_rows as read_rows
    from .run_view import RunView as RunView
    from .run_view import view as view
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
