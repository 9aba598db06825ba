"""`RayCollector`: collects in several processes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from ...base.checks import share_equally
from ...collect.arguments import update_policy
from ...collect.overlap.state import stamped, version_of
from ...collect.sharing import shares_of
from ...errors import ConfigError, StateMismatchError
from ...loop.metrics import Total
from ...loop.timing import Timing
from ..placement import Place
from .actors import Arrays, Collecting, weights_of
from .cluster import Cluster, import_ray
from .pool import RayWorkerError, Worker


class RayCollector:
    """Collects in processes of a Ray cluster, each with a share of the environments.

    The batches are those of the collector it is made of, put together from the shares, in the order
    of the environments; the environments play the episodes that they would play in one process.
    Each process draws actions with random numbers of its own.

    The policy's weights are put into Ray's object store when a batch is asked for, and each process
    reads them before it begins its share, so that no process and no learner waits for another's
    batch to end. With ``overlap=0`` every batch is collected by the policy as it is then. With
    ``overlap=1`` the next batch is begun as soon as one is handed out, so that the processes
    collect while the learner optimizes; its policy is then one update older. Each batch holds
    ``("collector", "policy_version")``, int64: how many batches the learner had trained on when the
    weights were taken.

    A process that dies, or whose machine does, is begun again: its environments begin new episodes
    with the share that was lost. A process that fails three times in a row ends the run.

    Its state holds the batch under way. A run with as many processes goes on bit for bit; with
    another number, environments begin new episodes.

    Args:
        collector: A `VectorCollector`, or another with its methods ``shard``, ``reshard`` and
            ``collect``. Its environments are closed: processes make their own.
        workers: Where the processes run, and how many they are.
        cluster: The cluster; released when the collector is shut down.
        overlap: 0 or 1, see above.
        timeout: Seconds after which a process that does not answer ends the run.

    Attributes:
        timing: Where the processes' times go, as ``worker/<name>``: their mean.
        policy_age: How many updates the policy of the last batch was behind.
        processes: How many processes collect.
        is_saved: Always false: checkpoints hold it as the collector, not as a hook.

    Raises:
        ConfigError: If the environments cannot be shared equally.
    """

    is_saved = False

    def __init__(
        self,
        collector: Any,
        workers: Place,
        cluster: Cluster,
        *,
        overlap: int = 0,
        timeout: float = 600.0,
    ) -> None:
        if overlap not in (0, 1):
            raise ConfigError(f"RayCollector(overlap={overlap!r}): pass 0 or 1.")
        number = workers.processes
        check_divisible(collector, number)
        self._ray = import_ray()
        self._cluster = cluster
        self.processes = number
        self.policy = collector.policy
        self.num_envs = collector.num_envs
        self.frames_per_batch = collector.frames_per_batch
        self.total_frames = collector.total_frames
        self.init_random_frames = collector.init_random_frames
        self.frame_skip = collector.frame_skip
        self.overlap = overlap
        self.timing = Timing()
        self.policy_age = 0
        self._place = workers
        self._frames = 0
        self._version = 0  # of the weights that the batch under way is collected with
        self._lost: RayWorkerError | None = None
        self._closed = False
        self._positions: list[Any] = [None] * number
        self._pending: list[TensorDict] = []  # of a run that is resumed
        options = [cluster.options(workers.kind, workers.number(i)) for i in range(number)]
        cluster.retain()
        try:
            self._template = self._ray.put(collector)
        except Exception as error:
            cluster.release()
            raise ConfigError(
                f"{type(collector).__name__} cannot be sent to other processes: {error}"
            ) from error
        collector.shutdown()
        self._workers = [
            Worker(f"collector {i}", _Begin(self, i, options[i]), timeout=timeout)
            for i in range(number)
        ]

    @property
    def frames(self) -> int:
        """Transitions handed out so far, those of earlier runs included."""
        return self._frames

    def metrics(self, batch: TensorDictBase) -> dict[str, Any]:
        """What to log of a batch: ``data/age``, ``data/restarts``."""
        return {"data/age": self.policy_age, "data/restarts": Total(self.restarts)}

    def register(self, trainer: Any) -> None:
        """Have a trainer log `metrics` with every batch."""
        trainer.register_op("pre_steps_log", self.metrics)

    def on_train_start(self, trainer: Any) -> None:
        """Start the processes, so that the first batch need not wait for them."""
        with trainer.timing.phase("start"):
            self.pids()

    @property
    def restarts(self) -> int:
        """How often a process was begun again."""
        return sum(worker.restarts for worker in self._workers)

    def __iter__(self) -> Iterator[TensorDict]:
        """Yield batches until ``total_frames`` are collected."""
        while self.total_frames < 0 or self._frames < self.total_frames:
            yield self.collect()

    def collect(self) -> TensorDict:
        """Collect one batch, ``[num_envs, time]``.

        Raises:
            Exception: What an environment or the policy raises in a process, with its traceback.
            RayWorkerError: If a process dies again and again, or does not answer.
        """
        if self._closed:
            raise RuntimeError("The collector is shut down; build a new one.")
        updates = self._updates
        batch = self._pending.pop() if self._pending else self._finish()
        self.policy_age = updates - version_of(batch)
        wanted = self._frames + self.frames_per_batch
        if self.overlap and (self.total_frames < 0 or wanted < self.total_frames):
            self._begin()
        self._frames = wanted
        return batch

    @property
    def _updates(self) -> int:
        """How many batches were handed out, which is how often the learner trained."""
        return self._frames // self.frames_per_batch

    def _begin(self) -> None:
        """Publish the weights and have all processes collect with them, if they are idle."""
        if self._workers[0].busy:
            return
        with self.timing.phase("sync_weights"):
            weights = self._ray.put(weights_of(self.policy))
        self._version = self._updates
        for worker in self._workers:
            worker.submit("collect", weights)

    def _finish(self) -> TensorDict:
        """Wait for the batch under way; begin one if there is none."""
        self._begin()
        shares = self._shares()
        entries = {key: _joined([share[key] for share in shares]) for key in shares[0]}
        time = self.frames_per_batch // self.num_envs
        batch = TensorDict({}, batch_size=(self.num_envs, time))
        for key, value in entries.items():
            batch.set(key, value)
        return stamped(batch, self._version)

    def _shares(self) -> list[Arrays]:
        """Wait for all processes, also if one of them fails: it is idle then, and so are they."""
        shares: list[Arrays] = []
        first: Exception | None = None
        for i, worker in enumerate(self._workers):
            try:
                share, self._positions[i], times = worker.result()
            except RayWorkerError as error:  # the others may not answer either
                self._lost = error
                raise
            except Exception as error:
                first = first or error
                continue
            shares.append(share)
            for name, seconds in times.items():
                self.timing.add(f"worker/{name}", seconds / len(self._workers))
        if first is not None:
            raise first
        return shares

    def positions(self) -> list[Any] | None:
        """Where each share's episodes stand; ``None`` before there are any."""
        return None if None in self._positions else list(self._positions)

    def set_seed(self, seed: int) -> None:
        """Refused: the processes take the seed of the collector that this one is made of."""
        raise ConfigError("seed the collector before it is given to RayCollector.")

    def update_policy_weights_(self, policy_or_weights: Any = None) -> None:
        """Bring the learner's policy up to date; its weights go with every batch asked for."""
        update_policy(self.policy, policy_or_weights)

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs; waits for the batch under way and keeps it.

        Raises:
            RayWorkerError: If a process was given up, and with it its state.
        """
        if self._lost is not None:
            raise self._lost
        if self._workers[0].busy:
            self._pending.append(self._finish())
        for worker in self._workers:
            worker.submit("state")
        return {
            "frames": self._frames,
            "workers": [worker.result() for worker in self._workers],
            "pending": list(self._pending),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what `state_dict` returned, of this or another number of processes.

        Raises:
            StateMismatchError: If it is the state of other environments.
        """
        if "workers" not in state_dict:  # it is of a collector in the learner's process
            state_dict = self.reshard([state_dict])
        saved = state_dict["workers"]
        episodes = sum(len(share["collector"]["episodes"]) for share in saved)
        if episodes != self.num_envs:
            raise StateMismatchError(
                f"The saved collector has {episodes} environments, this one {self.num_envs}."
            )
        same = len(saved) == len(self._workers) and "rng" in saved[0]
        states = [share["collector"] for share in saved]
        for i, worker in enumerate(self._workers):
            if worker.busy:
                worker.result()
            worker.submit("restore", saved[i]) if same else worker.submit("reshard", states)
        self._positions = [worker.result() for worker in self._workers]
        self._frames = (
            sum(state["frames"] for state in states) if not same else (state_dict["frames"])
        )
        self._pending = list(state_dict["pending"]) if same else []

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The state to go on with, from the states of several learners."""
        shares = [share for state in states for share in shares_of(state)]
        return {"workers": [{"collector": share} for share in shares], "pending": []}

    def pids(self) -> list[int]:
        """Process ids of the collecting processes, on their machines."""
        for worker in self._workers:
            worker.submit("pid")
        return [worker.result() for worker in self._workers]

    def shutdown(self) -> None:
        """End the processes; safe to call again."""
        if not self._closed:
            self._closed = True
            for worker in self._workers:
                worker.kill()
            self._cluster.release()

    close = shutdown

    def __repr__(self) -> str:
        return f"RayCollector({self._place}, num_envs={self.num_envs}, overlap={self.overlap})"


def check_divisible(collector: Any, number: int) -> None:
    """Refuse a collector whose environments cannot be shared out among so many processes."""
    if not callable(getattr(collector, "shard", None)):
        raise ConfigError(
            f"{type(collector).__name__} has no shard(rank, world_size), so it cannot be divided "
            "among processes; use a VectorCollector."
        )
    share_equally(collector.num_envs, number, "num_envs")


class _Begin:
    """Begins a collecting process."""

    def __init__(self, owner: RayCollector, index: int, options: dict[str, Any]) -> None:
        self._owner = owner
        self._index = index
        self._options = options

    def __call__(self, incarnation: int) -> Any:
        owner, place = self._owner, self._owner._place
        actor = owner._ray.remote(Collecting).options(**self._options)
        return actor.remote(
            owner._template,
            (self._index, place.processes),
            incarnation,
            place.number(self._index) if place.kind == "cpu" else None,
            "cuda" if place.kind == "gpu" else "cpu",
            owner.positions() if incarnation else None,
        )


def _joined(arrays: list[np.ndarray[Any, Any]]) -> torch.Tensor:
    """One tensor of the shares, side by side; a copy, since the store's memory is read-only."""
    return torch.from_numpy(np.concatenate(arrays))
