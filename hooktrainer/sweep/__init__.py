"""Hyperparameter search with Optuna: `Sweep` trains each trial's settings from several seeds."""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .options import SweepOptions as SweepOptions
    from .space import SearchSpace as SearchSpace
    from .sweep import Sweep as Sweep
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
