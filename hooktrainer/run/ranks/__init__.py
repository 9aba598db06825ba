"""Training with several processes, started by ``torchrun``, on one machine or many."""

from __future__ import annotations

from .data_parallel import DataParallel
from .gradients import shard_parameters
from .rank_state import GatheredCheckpoints, rank_state
from .ranks import RankControl, Ranks, RanksError

__all__ = [
    "DataParallel",
    "GatheredCheckpoints",
    "RankControl",
    "Ranks",
    "RanksError",
    "rank_state",
    "shard_parameters",
]
