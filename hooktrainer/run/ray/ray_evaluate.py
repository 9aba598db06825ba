"""`RayEvaluate`: evaluates in another process while training goes on."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tensordict import TensorDictBase

from ...hooks.evaluate import Evaluate
from ...loop.hook import AFTER
from ...loop.metrics import Latest
from ..placement import Place
from .cluster import Cluster, import_ray
from .pool import Evaluating, Worker, arrays_of
from .ray_collector import RayCollector

if TYPE_CHECKING:
    from ...loop.loop import Loop
    from ...trainer import Trainer


class RayEvaluate(Evaluate):
    """Does what an `Evaluate` does in a process of a Ray cluster, beside training.

    The weights are sent when an evaluation is due; its result is logged at the end of the batch in
    which it arrives, with the frames that it is of as ``<group>/frames``. One evaluation is under
    way at a time: the next one waits for it. The evaluation at the end of the run is waited for.

    Args:
        evaluate: The hook whose place this one takes.
        place: Where the process runs.
        cluster: The cluster; released when the hook is closed.
        timeout: Seconds after which a process that does not answer ends the run.
    """

    def __init__(
        self, evaluate: Evaluate, place: Place, cluster: Cluster, *, timeout: float = 600.0
    ) -> None:
        options: dict[str, Any] = {f.name: getattr(evaluate, f.name) for f in fields(evaluate)}
        super().__init__(**options)
        self._ray = import_ray()
        self._cluster = cluster
        cluster.retain()
        start, hook = cluster.starter(Evaluating, place, 0), self._ray.put(Evaluate(**options))
        self._worker = Worker("the evaluation", lambda incarnation: start(hook), timeout=timeout)
        self._sent_at = 0
        self._arrived: dict[str, Any] | None = None
        self._closed = False

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Begin an evaluation; log the one before if that was still under way."""
        metrics = self._take() if self._worker.busy or self._arrived else {}
        self._send()
        return metrics

    def look(self, batch: TensorDictBase) -> dict[str, Any] | None:
        """Log the evaluation under way if it has ended."""
        if self._arrived or (self._worker.busy and self._worker.ready()):
            return self._take()
        return None

    def _send(self) -> None:
        self._sent_at = self.evaluated_at = self.trainer.collected_frames
        self._worker.submit("evaluate", self._ray.put(arrays_of(self.policy)))

    def _receive(self) -> dict[str, Any]:
        return {**self._worker.result(), f"{self.group}/frames": float(self._sent_at)}

    def _take(self) -> dict[str, Any]:
        """The metrics of the evaluation under way, which ends the run if they are good enough."""
        arrived = self._arrived or self._receive()
        self._arrived = None
        self._mean = arrived[f"{self.group}/return"]
        self.trainer.request_log()
        self._stop_if_solved()
        return {k: v if k == "log_pbar" else Latest(v) for k, v in arrived.items()}

    def evaluate(self) -> dict[str, Any]:
        """Play the episodes with the policy as it is, wait, and return the metrics."""
        if self._worker.busy:
            self._worker.result()
        self._send()
        return {k: v if k == "log_pbar" else Latest(v) for k, v in self._receive().items()}

    def on_train_end(self, trainer: Loop) -> None:
        """Evaluate the final policy and wait for it, unless that was just done."""
        if self.evaluated_at == trainer.collected_frames and (
            self._worker.busy or self._arrived is not None
        ):
            trainer.log(self._take())
            return
        super().on_train_end(trainer)

    def register(self, trainer: Loop, name: str = "evaluate") -> None:
        """Register at ``post_steps_log``."""
        super().register(trainer, name)
        trainer.register_op("post_steps_log", self.look, priority=AFTER)

    def state_dict(self) -> dict[str, Any]:
        """Return when the last evaluation was and what it gave; waits for the one under way."""
        if self._worker.busy:
            self._arrived = self._receive()
        return {**super().state_dict(), "arrived": self._arrived}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the last evaluation."""
        super().load_state_dict(state_dict)
        self._arrived = state_dict.get("arrived")  # none if it was evaluated in the same process

    def close(self) -> None:
        """End the process; safe to call again."""
        if not self._closed:
            self._closed = True
            self._worker.kill()
            self._cluster.release()


# -- Putting the collector and the evaluation of a trainer onto a Ray cluster.


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
