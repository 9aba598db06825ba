"""`OverlappedCollector`: collects the next batches while the learner optimizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal

import torch

from ...base.checks import check_count
from ...base.endings import TIMEOUT
from ...errors import ConfigError
from ...loop.stateful import fitting, mismatches
from ..collector import OVERLAP, Weights, check_can_follow, weights_of
from ..messages import dump
from ..remote_collector import Collected, RemoteCollector, collected, status_of
from ..vector_collector import collector_state
from .server import ProcessWorker, ThreadWorker

Mode = Literal["process", "thread"]
_STREAM = 1  # separates the worker's random numbers from others with the run's seed


class OverlappedCollector(RemoteCollector):
    """Collects up to ``depth`` batches ahead, in its own process or thread.

    With ``depth=0`` batches are the collector's own, bit for bit, collected in this thread. With
    ``depth=1`` the next batch is collected while the learner optimizes on this one, by a policy one
    update older. A greater depth makes batches older, and hides the variance of collection times.

    The policy that collects is a copy. Its weights change between batches only, to the learner's at
    the time of the request. So the log-probabilities in a batch are those of the policy that acted.
    Changes that the copy makes to itself while acting are not copied back. Each batch holds
    ``("collector", "policy_version")``, int64: the number of batches the learner had trained on
    when the weights were taken. At most ``depth`` batches are ready or in progress, so the ratio of
    updates to data equals that of a run without overlap.

    A process has its own random numbers, seeded from the run's, so runs can be repeated and resumed
    bit for bit: the state waits for the batches in progress and includes them. A thread shares the
    learner's generators, in no fixed order: such a run resumes, but not exactly, unless the policy
    draws no random numbers.

    Args:
        collector: A `Collector`, or anything that `adapt` accepts, such as a TorchRL collector,
            which runs in a thread. It is closed at the first batch, and a copy replaces it. A
            collector without ``state_dict`` restarts when a run is resumed.
        depth: Number of batches collected ahead.
        mode: ``"process"``, or ``"thread"`` for environments that wait or release the interpreter's
            lock, and for objects that cannot be pickled; not for VMAS or ``stages`` above 1, which
            set back the random generators that all threads share.
        timeout: Seconds after which a process or thread that does not answer ends the run.

    Attributes:
        wrapped: The collector.
        resumes: ``"exactly"`` if the collector does, and collects in a process.
        policy_age: Number of updates by which the last batch's policy was older.

    Raises:
        ConfigError: If an argument is invalid.

    Examples:
        >>> from hooktrainer import VectorCollector
        >>> collector = OverlappedCollector(
        ...     VectorCollector("CartPole-v1", num_envs=4, frames_per_batch=64, total_frames=192),
        ...     mode="thread",
        ... )
        >>> [collector.policy_age for batch in collector]
        [0, 1, 1]
        >>> collector.shutdown()
    """

    def __init__(
        self,
        collector: Any,
        depth: int = 1,
        *,
        mode: Mode = "process",
        timeout: float = TIMEOUT,
    ) -> None:
        if mode not in (modes := ("process", "thread")):
            raise ConfigError(f"OverlappedCollector: mode={mode!r} is neither of {modes}.")
        check_count("depth", depth, least=0)
        super().__init__(collector, depth)
        if depth:
            check_can_follow(self.policy)
        self.mode: Mode = mode
        self.frames = self._collector.frames
        if self.resumes == "exactly" and depth and mode == "thread":
            self.resumes = "partly"
        # The worker starts with the first request. Until then all calls go to the collector here;
        # afterwards that one is closed, and the worker has a copy.
        self._workers: list[ProcessWorker | ThreadWorker] = []
        self._sent = -1  # version of the weights that the worker has
        self._share = 0  # index of this learner among several
        self._rng: dict[str, Any] | None = None  # the random state with which a process starts
        self._timeout = timeout

    # -- batches ---------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self.depth:
            self._collector.timing = self.timing
            self._collector.start()
        if not self.depth or self._workers:
            return
        if self.mode == "thread" and self._collector.sets_rng:
            raise ConfigError(
                "OverlappedCollector(mode='thread'): VMAS and stages above 1 set back the random "
                "generators that all threads share: collect in a process, mode='process'."
            )
        copy: Any
        copy, start = (deepcopy, ThreadWorker) if self.mode == "thread" else (dump, ProcessWorker)
        entropy = self._entropy(self._collector.seed)
        try:
            given = copy((self._collector, entropy, self._rng))
        except Exception as error:
            raise ConfigError(
                f"{type(self._collector).__name__} cannot be copied for another {self.mode}: "
                f"{error}. Give it environments by id or factory, or collect in a thread: "
                "mode='thread'."
            ) from error
        self._collector.shutdown()
        self._workers = [start(given, self._timeout)]
        self._sent = self._updates

    def _entropy(self, seed: int | None) -> tuple[int, ...] | None:
        """The seed of a process's random numbers; a thread shares the learner's."""
        if self.mode == "thread":
            return None
        return (torch.initial_seed() if seed is None else seed, self._share, _STREAM)

    def _take(self) -> Collected:
        if not self.depth and not self._ready:
            self._collector.timing = self.timing
            return collected(self._collector, self._updates)
        return super()._take()

    def _request(self) -> None:
        self._start()
        (worker,), trace = self._workers, self.timing.trace is not None
        with self.timing.phase("sync_weights"):
            worker.call("collect", self._updates, self._new_weights(), trace)
        self._under_way += 1

    def _new_weights(self) -> Weights | None:
        """The policy's weights, unless the worker has them."""
        sent, self._sent = self._sent, self._updates
        # A thread gets copies; for a process they are copied when they are sent.
        is_thread = self.mode == "thread"
        return None if sent == self._sent else weights_of(self._collector.policy, copies=is_thread)

    # -- the collector contract ------------------------------------------------------------------

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        self._discard()
        if not self._workers:
            self._collector.set_seed(seed)
        else:
            self._ask_all("set_seed", seed, self._entropy(seed))
        self.seed = seed
        return seed if static_seed else seed + 1

    def reset(self) -> None:
        self._discard()
        if not self._workers:
            self._collector.reset()
        else:
            self._ask_all("reset")

    def shard(self, rank: int, world_size: int) -> None:
        if self._workers:
            raise ConfigError("shard() was called after the first batch.")
        self._collector.shard(rank, world_size)
        self._describe()
        self._share = rank

    def check_shares(self, number: int) -> None:
        self._collector.check_shares(number)

    def use_workers(self, workers: int, stages: int = 1, *, timeout: float = TIMEOUT) -> None:
        self._collector.use_workers(workers, stages, timeout=timeout)

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return self._collector.reshard([collector_state(state) for state in states])

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs; waits for the batches in progress and includes them."""
        self._wait()
        if not self._workers:
            state, rng = self._collector.state_dict(), self._rng
        else:
            ((state, rng),) = self._ask_all("state")
        return {
            "collector": state,
            OVERLAP: {
                "updates": self._updates,
                "frames": self.frames,
                "batches": [batch.copy() for batch, _ in self._ready],
                "statuses": self._statuses(),
                "rng": rng if self.mode == "process" else None,
            },
        }

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        return mismatches(self._collector, saved["collector"] if OVERLAP in saved else saved)

    def fitting(self, saved: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return fitting(self._collector, collector_state(saved))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a `state_dict`, also of another depth or of a plain collector."""
        own = state_dict["collector"] if OVERLAP in state_dict else state_dict
        ours = state_dict.get(OVERLAP, {})
        self._discard()
        self._rng = ours.get("rng") if self.mode == "process" else None
        self._sent = -1  # the worker has other weights
        if not self._workers:
            self._collector.load_state_dict(own)
            frames, status = self._collector.frames, status_of(self._collector)
        else:
            ((frames, status),) = self._ask_all("load", own, self._rng)
        self._restore(ours.get("batches", []), ours.get("statuses"), status)
        self._updates = ours.get("updates", 0)
        self.frames = ours.get("frames", frames)

    def _close(self) -> None:
        if not self._workers:
            self._collector.shutdown()
        else:
            self._workers[0].close()

    def __repr__(self) -> str:
        resumed = "exactly" if self.resumes == "exactly" else "with other random numbers"
        return (
            f"OverlappedCollector({self._collector!r}, depth={self.depth}, mode={self.mode}, "
            f"resumed {resumed})"
        )
