"""Runs: configuration, directory and identity, resume, and placement of their parts.

`Ranks` are several processes started by ``torchrun``, on one machine or many; `RayCollector` and
`RayEvaluate` work in other processes and on other machines, by way of Ray.
"""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .config import Between as Between
    from .config import FreeOnResume as FreeOnResume
    from .config import Needs as Needs
    from .config import OneOf as OneOf
    from .config import RunConfig as RunConfig
    from .placement import Machine as Machine
    from .placement import Place as Place
    from .placement import places_of as places_of
    from .ranks.data_parallel import DataParallel as DataParallel
    from .ranks.gradients import shard_parameters as shard_parameters
    from .ranks.rank_state import GatheredCheckpoints as GatheredCheckpoints
    from .ranks.rank_state import rank_state as rank_state
    from .ranks.ranks import RankControl as RankControl
    from .ranks.ranks import Ranks as Ranks
    from .ranks.ranks import RanksError as RanksError
    from .ray.cluster import Cluster as Cluster
    from .ray.ray_collector import RayCollector as RayCollector
    from .ray.ray_collector import RayEvaluate as RayEvaluate
    from .ray.ray_collector import use_ray as use_ray
    from .recipe import launch as launch
    from .recipe import mistakes_in_one_line as mistakes_in_one_line
    from .run import Run as Run
    from .session import Session as Session
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
