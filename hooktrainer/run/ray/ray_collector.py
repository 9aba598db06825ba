"""`RayCollector`: collects in several processes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from tensordict import TensorDictBase

from ...base.endings import TIMEOUT
from ...base.worker import ChildError
from ...collect.collector import check_can_follow, weights_of
from ...collect.messages import dump, pack
from ...collect.remote_collector import RemoteCollector, joined
from ...collect.vector_collector import shares_of
from ...errors import ConfigError
from ...hooks.evaluate import Evaluate
from ...loop.hook import AFTER
from ...loop.metrics import Latest, Total
from ..placement import Place
from .cluster import Cluster, import_ray
from .pool import Actor, Evaluator, Worker, serve_share

if TYPE_CHECKING:
    from ...loop.loop import Loop
    from ...trainer import Trainer


class RayCollector(RemoteCollector):
    """Collects in processes of a Ray cluster, each with a share of the environments.

    The batches are those of the given collector: the shares are concatenated in the order of the
    environments, which play the episodes that they would play in one process. Each process draws
    actions with its own random numbers.

    The policy's weights are put into Ray's object store when a batch is requested, and each process
    reads them before it begins its share, so that no process waits for another one's batch. With
    ``overlap=0`` every batch is collected by the current policy. With ``overlap=1`` the next batch
    is requested as soon as one is returned, so that the processes collect while the learner
    optimizes; its policy is then one update older. Each batch holds ``("collector",
    "policy_version")``, int64: the number of batches the learner had trained on when the weights
    were copied.

    A process that dies, alone or with its machine, is restarted: its environments begin new
    episodes, and the lost share is collected again. A process that fails three times in a row ends
    the run.

    The state includes the batch under way. A run resumed with as many processes continues bit for
    bit; with another number, environments begin new episodes.

    Args:
        collector: A `Collector` that can be shared, or an object that `adapt` converts to one. It
            is closed, since the processes have copies.
        workers: Place and number of the processes.
        cluster: The cluster; closed when the collector is shut down.
        overlap: 0 or 1, see above.
        timeout: Seconds after which a process that does not answer ends the run.

    Attributes:
        timing: Where the processes' times go, as ``worker/<name>``: their mean.
        processes: How many processes collect.

    Raises:
        ConfigError: If the environments cannot be shared equally.
    """

    def __init__(
        self,
        collector: Any,
        workers: Place,
        cluster: Cluster,
        *,
        overlap: int = 0,
        timeout: float = TIMEOUT,
    ) -> None:
        if overlap not in (0, 1):
            raise ConfigError(f"RayCollector(overlap={overlap!r}): pass 0 or 1.")
        super().__init__(collector, overlap)
        number = workers.processes
        check_can_follow(self.policy)
        self._collector.check_shares(number)
        self._ray = import_ray()
        self._cluster = cluster
        self.processes = number
        self._place = workers
        self._lost: ChildError | None = None
        starters = [cluster.starter(Actor, workers, i) for i in range(number)]
        try:
            self._template = self._ray.put(dump(self._collector))
        except Exception as error:
            raise ConfigError(
                f"{type(collector).__name__} cannot be sent to other processes: {error}"
            ) from error
        self._collector.shutdown()
        self._workers = [
            Worker(f"collector {i}", partial(self._begin_share, start, i), timeout=timeout)
            for i, start in enumerate(starters)
        ]

    def _begin_share(self, start: Callable[..., Any], index: int, incarnation: int) -> Any:
        frames = self.frames // self.processes
        return start(serve_share, self._template, index, self.processes, incarnation, frames)

    def metrics(self, batch: TensorDictBase) -> dict[str, Any]:
        """Return the metrics of a batch: ``data/age``, ``data/restarts``."""
        return {**super().metrics(batch), "data/restarts": Total(self.restarts)}

    def _start(self) -> None:
        self.pids()

    @property
    def restarts(self) -> int:
        """Number of times that a process was restarted."""
        return sum(worker.restarts for worker in self._workers)

    def _request(self) -> None:
        """Publish the weights, and request a batch from all processes."""
        with self.timing.phase("sync_weights"):
            call = "collect", self._updates, weights_of(self.policy), False
            message = self._ray.put(pack(call))
        for worker in self._workers:
            worker.send(message)
        self._under_way += 1

    def _answers(self) -> list[Any]:
        """Wait for all processes, even if one of them fails, so that all are idle afterwards."""
        answers: list[Any] = []
        first: Exception | None = None
        for worker in self._workers:
            try:
                answers.append(worker.answer())
            except ChildError as error:  # the others may not answer either
                self._lost = error
                raise
            except Exception as error:
                first = first or error
        if first is not None:
            raise first
        return answers

    def set_seed(self, seed: int, static_seed: bool = False) -> Any:
        """Raise ConfigError: the processes use the seed of the given collector."""
        raise ConfigError("seed the collector before it is given to RayCollector.")

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs; waits for the batch under way and includes it.

        Raises:
            ChildError: If a process was given up, so that its state is lost.
        """
        if self._lost is not None:
            raise self._lost
        self._wait()
        states = self._ask_all("state")
        return {
            "frames": self.frames,
            "updates": self._updates,
            "workers": [{"collector": state, "rng": rng} for state, rng in states],
            "pending": [batch for batch, _ in self._ready],
            "statuses": self._statuses(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state of this or another number of processes.

        Raises:
            StateMismatchError: If it is the state of other environments.
        """
        if "workers" not in state_dict:  # it is of a collector in the learner's process
            state_dict = self.reshard([state_dict])
        saved = state_dict["workers"]
        same = len(saved) == len(self._workers) and "rng" in saved[0]
        self._discard()
        if same:
            for worker, share in zip(self._workers, saved, strict=True):
                worker.call("load", share["collector"], share["rng"])
            loaded = self._answers()
            self.frames, self._updates = state_dict["frames"], state_dict["updates"]
        else:
            loaded = self._ask_all("load_share", [share["collector"] for share in saved])
            self.frames, self._updates = sum(frames for frames, _ in loaded), 0
            state_dict = {}
        status = joined([status for _, status in loaded])
        self._restore(state_dict.get("pending", []), state_dict.get("statuses"), status)

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        return []  # what was collected ahead is left out

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Merge the states of several learners."""
        shares = [share for state in states for share in shares_of(state)]
        return {"workers": [{"collector": share} for share in shares], "pending": []}

    def pids(self) -> list[int]:
        """Return the process ids of the collecting processes, on their machines."""
        return self._ask_all("process")

    def check_shares(self, number: int) -> None:
        """Raise ConfigError unless ``number`` is 1: the environments are shared already."""
        if number != 1:
            raise ConfigError("a RayCollector shares its environments among its own processes.")

    def _close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._cluster.close()

    def __repr__(self) -> str:
        return f"RayCollector({self._place}, num_envs={self.num_envs}, overlap={self.depth})"


# -- `RayEvaluate`: evaluates in another process during training.


class RayEvaluate(Evaluate):
    """An `Evaluate` that runs in a process of a Ray cluster, in parallel with training.

    The weights are sent when an evaluation is due. Its result is logged at the end of the batch in
    which it arrives, with the frames of its policy as ``<group>/frames``. One evaluation is under
    way at a time: the next one waits for it. The run waits for the one at its end, and a checkpoint
    for the one under way, whose result it includes.

    Args:
        evaluate: The hook to replace.
        place: Where the process runs.
        cluster: The cluster.
        timeout: Seconds after which a process that does not answer ends the run.
    """

    def __init__(
        self, evaluate: Evaluate, place: Place, cluster: Cluster, *, timeout: float = TIMEOUT
    ) -> None:
        options: dict[str, Any] = {f.name: getattr(evaluate, f.name) for f in fields(evaluate)}
        super().__init__(**options)
        check_can_follow(self.policy)
        start = partial(cluster.starter(Actor, place, 0), Evaluator, dump(Evaluate(**options)))
        self._worker = Worker("the evaluation", lambda incarnation: start(), timeout=timeout)
        self._sent_at = 0
        self._arrived: dict[str, Any] | None = None  # at a checkpoint, and not yet logged

    @property
    def _is_under_way(self) -> bool:
        return self._worker.busy or self._arrived is not None

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Begin an evaluation; log the one before if that was still under way."""
        metrics = self._take() if self._is_under_way else {}
        self._send()
        return metrics

    def look(self, batch: TensorDictBase) -> dict[str, Any] | None:
        """Log the evaluation under way if it has ended."""
        has_ended = self._arrived is not None or (self._worker.busy and self._worker.ready())
        return self._take() if has_ended else None

    def _send(self) -> None:
        self._sent_at = self.trainer.collected_frames
        self._worker.call("evaluate", weights_of(self.policy))

    def _receive(self) -> dict[str, Any]:
        arrived, self._arrived = self._arrived, None
        return arrived or {**self._worker.answer(), f"{self.group}/frames": float(self._sent_at)}

    def _take(self) -> dict[str, Any]:
        """Return the metrics of the evaluation under way; stop the run if it is solved."""
        metrics = self._receive()
        self.evaluated_at = self._sent_at
        self._mean = metrics[f"{self.group}/return"]
        self.trainer.request_log()
        self._stop_if_solved()
        return _latest(metrics)

    def evaluate(self) -> dict[str, Any]:
        if self._is_under_way:
            self._receive()
        self._send()
        return _latest(self._receive())

    def on_train_end(self, trainer: Loop) -> None:
        """Evaluate the final policy and wait for it, unless that was just done."""
        if self._is_under_way and self._sent_at == trainer.collected_frames:
            trainer.log(self._take())
        else:
            super().on_train_end(trainer)

    def register(self, trainer: Loop, name: str = "evaluate") -> None:
        super().register(trainer, name)
        trainer.register_op("post_steps_log", self.look, priority=AFTER)

    def state_dict(self) -> dict[str, Any]:
        if self._worker.busy:
            self._arrived = self._receive()
        return {**super().state_dict(), "arrived": self._arrived}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._arrived = state_dict.get("arrived")  # none of an `Evaluate` in the learner's process
        if self._arrived is not None:
            self._sent_at = int(self._arrived[f"{self.group}/frames"])

    def close(self) -> None:
        self._worker.close()


def _latest(metrics: dict[str, Any]) -> dict[str, Any]:
    return {k: v if k == "log_pbar" else Latest(v) for k, v in metrics.items()}


# -- Moving the collector and the evaluation of a trainer to a Ray cluster.


def use_ray(
    trainer: Trainer,
    collectors: Place,
    evaluation: Place,
    *,
    overlap: int = 0,
    timeout: float = TIMEOUT,
) -> RayCollector:
    """Move the collector and the evaluation of a trainer to processes of a Ray cluster.

    Call it after all hooks are registered, and before a state is loaded.

    Args:
        trainer: The trainer; its collector and its `Evaluate` hooks are replaced.
        collectors: Place and number of the collecting processes.
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
    try:
        collector = RayCollector(
            trainer.collector, collectors, cluster, overlap=overlap, timeout=timeout
        )
        trainer.collector = collector
        for name, hook in evaluations.items():
            trainer.remove_hook(name)
            RayEvaluate(hook, evaluation, cluster, timeout=timeout).register(trainer, name)
    except BaseException:
        cluster.close()
        raise
    collector.register_alone(trainer)
    return collector
