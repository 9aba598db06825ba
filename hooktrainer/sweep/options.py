"""`SweepOptions`: how a sweep goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..base.checks import check_count, check_rate
from ..base.seed_ranges import TUNING_SEEDS
from ..errors import ConfigError

_MOST_SEEDS = 1_000  # of a trial, finals included, so that those of two sweeps do not overlap


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """How a sweep goes.

    Raises:
        ConfigError: If a value cannot work.
    """

    run_dir: Path
    """directory of the sweep; the runs of trial k are in trial<k>/seed<i>"""
    trials: int = 40
    """how many trials the whole sweep has, whoever makes them"""
    seeds: int = 3
    """seeds that each trial is trained from"""
    parallel: int = 4
    """trials that are trained and compared at once; each seed of each has a process, of which as
    many compute as there are cores"""
    objective: Literal["area", "last", "tail", "best"] = "area"
    """what is made of a seed's evaluations; a trial's value is the mean over its seeds"""
    finalists: int | None = None
    """how many of the best trials are trained from as many further seeds as they had when all are
    done, before one of them wins; 0 or 1 for none; by default one for every eight trials, up to
    three, so that finals take no more than an eighth of what the trials may"""
    cpu_second: float = 0.0
    """what a CPU second of a seed takes from its score; trials are then trained one by one"""
    sampler: Literal["tpe", "gp", "random"] = "tpe"
    """what chooses settings"""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """what ends trials early"""
    seed: int = 0
    """seed of the sampler, and of which tuning seeds are taken"""
    storage: str | None = None
    """where trials are written down: an URL, or a file; by default study.journal in run_dir"""
    study: str | None = None
    """the study's name there; by default what is trained, and where"""

    def __post_init__(self) -> None:
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
        """How many trials there are in the finals, if so many have come to their end."""
        return min(3, self.trials // 8) if self.finalists is None else self.finalists

    def tuning_seeds(self) -> range:
        """The seeds that each trial is trained from."""
        first = TUNING_SEEDS.start + self.seed * _MOST_SEEDS
        return range(first, first + self.seeds)
