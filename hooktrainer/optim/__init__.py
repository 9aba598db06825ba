"""Optimizers for small networks, where call overhead exceeds the arithmetic."""

from __future__ import annotations

from .flat_adam import FlatAdam

__all__ = ["FlatAdam"]
