"""Asynchronous collection: the next batches are collected while the learner optimizes."""

from __future__ import annotations

from .overlapped import OverlappedCollector

__all__ = ["OverlappedCollector"]
