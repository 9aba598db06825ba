"""Collectors and evaluation in other processes and on other machines, by way of Ray."""

from typing import TYPE_CHECKING

from ...base.lazy import attach

if TYPE_CHECKING:
    from .cluster import Cluster as Cluster
    from .ray_collector import RayCollector as RayCollector
    from .ray_collector import RayEvaluate as RayEvaluate
    from .ray_collector import use_ray as use_ray
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
