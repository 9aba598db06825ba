"""`SweepOptions`: the options of a sweep, in Python and on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..base.checks import TUNING_SEEDS, check_count, check_rate
from ..errors import ConfigError

_MOST_SEEDS = 1_000  # of a trial, finals included; seeds of two sweeps do not overlap


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The options of a sweep."""

    run_dir: Path | None = None
    """directory of the sweep, with runs in trial<k>/seed<i>; by default runs/sweep_NAME_ENV"""
    trials: int = 40
    """trials of the whole sweep, over all processes"""
    seeds: int = 3
    """seeds of each trial, which no report counts"""
    parallel: int = 4
    """how many trials are trained and compared at once"""
    objective: Literal["area", "last", "tail", "best"] = "area"
    """score of a seed: area under its curve; last evaluation; mean of the tail; or best"""
    finalists: int | None = None
    """best trials that get further seeds before one wins; by default an eighth, at most 3"""
    cpu_second: float = 0.0
    """what a CPU second of a seed subtracts from its score; trials then train one at a time"""
    sampler: Literal["tpe", "gp", "random"] = "tpe"
    """Optuna's sampler of settings"""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """what ends trials early"""
    seed: int = 0
    """seed of the sampler, and of the choice of tuning seeds"""

    def check(self) -> None:
        """Raise ConfigError if a value is out of range."""
        for name in ("trials", "seeds", "parallel"):
            check_count(name, getattr(self, name))
        check_rate("cpu_second", self.cpu_second)
        check_count("seed", self.seed, least=0)
        check_count("finalists", self.most_finalists, least=0)
        most = len(TUNING_SEEDS) // _MOST_SEEDS
        if self.seeds * 2 > _MOST_SEEDS or self.seed >= most:
            raise ConfigError(
                f"seeds={self.seeds}, seed={self.seed}: there are tuning seeds for at most "
                f"{_MOST_SEEDS // 2} seeds a trial, and for seeds of sweeps below {most:,}."
            )

    @property
    def most_finalists(self) -> int:
        """Most trials in the finals."""
        return min(3, self.trials // 8) if self.finalists is None else self.finalists

    def tuning_seeds(self) -> range:
        """Return the seeds of each trial."""
        first = TUNING_SEEDS.start + self.seed * _MOST_SEEDS
        return range(first, first + self.seeds)
