"""Reading what runs have left behind: how they stand, their curves, and how they compare.

Nothing here needs PyTorch, so a look at a directory of runs comes at once.
"""

from __future__ import annotations

from ..curves import Band, Curve, band, read_curves
from .comparison_page import comparison_page
from .grouping import Group, group_runs, lineage
from .summary import MetricsTail, RunSummary, summarize, summarize_sweep

__all__ = [
    "Band",
    "Curve",
    "Group",
    "MetricsTail",
    "RunSummary",
    "band",
    "comparison_page",
    "group_runs",
    "lineage",
    "read_curves",
    "summarize",
    "summarize_sweep",
]
