"""Collecting the next batches while the learner optimizes on this one."""

from __future__ import annotations

from .overlapped import OverlappedCollector

__all__ = ["OverlappedCollector"]
