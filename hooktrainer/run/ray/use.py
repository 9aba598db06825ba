"""Putting the collector and the evaluation of a trainer onto a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...hooks.evaluate import Evaluate
from ..placement import Place
from .cluster import Cluster
from .ray_collector import RayCollector
from .ray_evaluate import RayEvaluate

if TYPE_CHECKING:
    from ...trainer import Trainer


def use_ray(
    trainer: Trainer,
    collectors: Place,
    evaluation: Place,
    *,
    overlap: int = 0,
    timeout: float = 600.0,
) -> RayCollector:
    """Have a trainer collect and evaluate in processes of a Ray cluster.

    Call it when all hooks are registered and before a state is loaded.

    Args:
        trainer: The trainer; its collector and its `Evaluate` hooks are replaced.
        collectors: Where the collecting processes run, and how many they are.
        evaluation: Where the evaluating process runs.
        overlap: See `RayCollector`.
        timeout: Seconds after which a process that does not answer ends the run.

    Returns:
        The collector.

    Raises:
        ConfigError: If the environments cannot be shared equally, or something is not there.
    """
    trainer.source.check_shares(collectors.processes)  # before a cluster is begun
    evaluations = {
        name: hook for name, hook in trainer.registry.modules.items() if type(hook) is Evaluate
    }
    cluster = Cluster(collectors.processes + len(evaluations))
    cluster.retain()
    try:
        collector = RayCollector(
            trainer.collector, collectors, cluster, overlap=overlap, timeout=timeout
        )
        trainer.collector = collector
        for name, hook in evaluations.items():
            trainer.remove_hook(name)
            RayEvaluate(hook, evaluation, cluster, timeout=timeout).register(trainer, name)
    finally:
        cluster.release()
    collector.register(trainer)
    return collector
