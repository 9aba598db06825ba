"""Collectors and evaluation in other processes and on other machines, by way of Ray."""

from __future__ import annotations

from .cluster import Cluster
from .collector import RayCollector
from .evaluate import RayEvaluate
from .pool import RayWorkerError
from .use import use_ray

__all__ = ["Cluster", "RayCollector", "RayEvaluate", "RayWorkerError", "use_ray"]
