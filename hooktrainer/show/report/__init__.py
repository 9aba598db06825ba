"""Summaries of runs from their directories, their curves, and comparisons; without PyTorch."""

from __future__ import annotations

from ..curves import Band, Curve, band, read_curves
from .grouping import Group, group_runs, lineage
from .summary import RunSummary, summarize

__all__ = [
    "Band",
    "Curve",
    "Group",
    "RunSummary",
    "band",
    "group_runs",
    "lineage",
    "read_curves",
    "summarize",
]
