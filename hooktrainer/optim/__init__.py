"""Optimizers for small networks, where call overhead exceeds the arithmetic; parameter groups."""

from __future__ import annotations

from .flat_adam import FlatAdam
from .groups import parameter_groups

__all__ = ["FlatAdam", "parameter_groups"]
