"""Optimizers for small networks; parameter groups; trust-region steps."""

from __future__ import annotations

from .flat_adam import FlatAdam
from .groups import parameter_groups
from .trust_region import conjugate_gradient, trust_region_step

__all__ = ["FlatAdam", "conjugate_gradient", "parameter_groups", "trust_region_step"]
