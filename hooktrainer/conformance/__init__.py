"""Scores RL trainers by small trainings whose results are known; see `check`."""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .adapter import Adapter as Adapter
    from .adapter import Task as Task
    from .adapter import Trained as Trained
    from .adapter import load_adapter as load_adapter
    from .adapter import parameters_of as parameters_of
    from .adapter import scalars_in as scalars_in
    from .probes import Finding as Finding
    from .probes import check as check
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
