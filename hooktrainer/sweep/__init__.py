"""Sweeps: searching the options of an algorithm, on Optuna.

`Sweep` is the whole: what `hooktrainer sweep` runs. A trial is the algorithm with some settings,
trained from several seeds; trials whose networks are computed alike are rows of one batched run.
"""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .space import SearchSpace as SearchSpace
    from .sweep import Sweep as Sweep
    from .sweep import SweepOptions as SweepOptions
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
