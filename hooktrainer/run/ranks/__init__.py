"""Training with several processes, started by ``torchrun``, on one machine or many."""

from __future__ import annotations

from .checkpoints import GatheredCheckpoints
from .control import RankControl
from .data_parallel import DataParallel
from .errors import RanksError
from .ranks import Ranks
from .restore import RankState, rank_state
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
