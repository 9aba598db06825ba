"""Optimizers for small networks, where the calls cost more than the arithmetic."""

from __future__ import annotations

from .flat_adam import FlatAdam

__all__ = ["FlatAdam"]
