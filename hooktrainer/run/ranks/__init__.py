"""Training with several processes, started by ``torchrun``, on one machine or many."""

from __future__ import annotations

from .checkpoints import GatheredCheckpoints
from .data_parallel import DataParallel
from .rank_control import RankControl
from .rank_errors import RanksError
from .rank_state import RankState, rank_state
from .ranks import Ranks
from .sharded import shard_parameters

__all__ = [
    "DataParallel",
    "GatheredCheckpoints",
    "RankControl",
    "RankState",
    "Ranks",
    "RanksError",
    "rank_state",
    "shard_parameters",
]
