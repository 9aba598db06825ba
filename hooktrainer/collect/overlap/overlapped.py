"""`OverlappedCollector`: collects the next batches while the learner optimizes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import torch
from tensordict import TensorDictBase

from ...errors import ConfigError
from ...loop.metrics import Total
from ...loop.stateful import fitting, mismatches
from ...loop.timing import Timing
from ..collector import TIMEOUT, Collector, Weights, check_can_follow, weights_of
from ..episodes_collector import OVERLAP, collector_state
from ..remote_collector import RemoteCollector, stamped, version_of
from .server import Collected, ProcessWorker, Request, ThreadWorker


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

    A process has its own random numbers, seeded from the run's. The weights of each batch do not
    depend on time, so runs can be repeated and resumed bit for bit: the state waits for the batches
    in progress and includes them. A thread shares the learner's generators, in no fixed order: such
    a run resumes, but not exactly, unless the policy draws no random numbers.

    Args:
        collector: A `Collector`, or anything that `adapt` accepts, such as a TorchRL collector,
            which runs in a thread. It is closed at the first batch, and a copy replaces it. A
            collector without ``state_dict`` restarts when a run is resumed.
        depth: Number of batches collected ahead.
        mode: ``"process"``, or ``"thread"`` for environments that wait or release the interpreter's
            lock, and for objects that cannot be pickled.
        weights: ``"fixed"``: a batch uses the weights at the time of its request, so runs can be
            repeated. ``"newest"``: the newest weights when it starts, which makes batches younger
            if collection is the slower side; `update_policy_weights_` publishes them, after every
            batch once a trainer is registered.
        max_age: The most updates by which a batch's policy may be older than the learner's.
        when_old: How ``max_age`` is kept: ``"wait"``: batches are requested later; ``"drop"``:
            batches that are too old are dropped, counted, and collected again.
        timeout: Seconds after which a process or thread that does not answer ends the run.

    Attributes:
        wrapped: The collector.
        resumes: ``"exactly"`` if the collector does, and collects in a process with fixed weights.
        policy_age: Number of updates by which the last batch's policy was older.
        dropped: Number of dropped batches.
        is_saved: Always false: checkpoints hold it as the collector, not as a hook.

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
        weights: Literal["fixed", "newest"] = "fixed",
        max_age: int | None = None,
        when_old: Literal["wait", "drop"] = "wait",
        timeout: float = TIMEOUT,
    ) -> None:
        _check_choice("mode", mode, ("process", "thread"))
        _check_choice("weights", weights, ("fixed", "newest"))
        _check_choice("when_old", when_old, ("wait", "drop"))
        for name, value in (("depth", depth), ("max_age", max_age)):
            if value is not None and (not isinstance(value, int) or value < 0):
                raise ConfigError(f"OverlappedCollector({name}={value!r}): pass 0 or more.")
        super().__init__(collector)
        if depth:
            check_can_follow(self.policy)
        self.depth = depth
        self.mode: Mode = mode
        self.weights = weights
        self.max_age = max_age
        self.when_old = when_old
        self.dropped = 0
        self.frames = self._collector.frames
        repeatable = depth == 0 or (mode == "process" and weights == "fixed")
        if self.resumes == "exactly" and not repeatable:
            self.resumes = "partly"
        newest = weights == "newest"
        self._prefetcher = Prefetcher(self._collector, mode, newest=newest, timeout=timeout)
        self._prefetcher.timing = self.timing

    @property
    def ahead(self) -> int:
        """Number of batches that are ready or in progress."""
        return len(self._prefetcher)

    @property
    def timing(self) -> Timing:
        """The timing that receives the worker's times, as ``worker/<name>``."""
        return self._timing

    @timing.setter
    def timing(self, timing: Timing) -> None:
        self._timing = self._prefetcher.timing = timing
        if not self.depth:
            self._collector.timing = timing

    def metrics(self, batch: TensorDictBase) -> dict[str, Any]:
        """Metrics of a batch: ``data/age``, and ``data/dropped`` if batches can be dropped."""
        metrics = super().metrics(batch)
        if self.max_age is not None and self.when_old == "drop":
            metrics["data/dropped"] = Total(self.dropped)
        return metrics

    def register(self, trainer: Any) -> None:
        """Log `metrics` with every batch, and publish weights with ``weights="newest"``."""
        super().register(trainer)
        if self.weights == "newest":
            trainer.register_op("post_steps", self.update_policy_weights_)

    # -- collecting ------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self.depth:
            self._collector.start()
        elif not self._prefetcher.has_begun:
            self._prefetcher.begin(self._updates)

    def _take(self) -> TensorDictBase:
        """Wait for the next batch."""
        while True:
            batch = self._next()
            self.policy_age = self._updates - version_of(batch)
            if self.when_old == "wait" or self.max_age is None or self.policy_age <= self.max_age:
                return batch
            self.dropped += 1

    def _ask(self) -> None:
        limit = self.depth
        if self.when_old == "wait" and self.max_age is not None:
            limit = min(limit, self.max_age)
        while self.ahead < limit and self._wants_more(self.ahead):
            self._prefetcher.ask(self._updates)

    def _next(self) -> TensorDictBase:
        if not self.ahead:
            if not self.depth:
                return stamped(self._collector.collect(), self._updates)
            self._prefetcher.ask(self._updates)
        return self._prefetcher.take()

    # -- the collector contract ------------------------------------------------------------------

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Restart all environments, seeded from ``seed``."""
        self._prefetcher.set_seed(seed)
        self.seed = seed
        return seed if static_seed else seed + 1

    def reset(self) -> None:
        """Abandon the running episodes: the next batch starts with new ones."""
        self._prefetcher.reset()

    def update_policy_weights_(self, policy_or_weights: Any = None) -> None:
        """Update the learner's policy, as the collector does.

        With ``weights="newest"`` the worker uses it from the next batch that starts. Otherwise the
        next requested batch does, and nothing needs to be called.
        """
        super().update_policy_weights_(policy_or_weights)
        self._prefetcher.publish(self._updates)

    def shard(self, rank: int, world_size: int) -> None:
        """Keep one process's share of the environments. Each process has its own worker."""
        if self._prefetcher.has_begun:
            raise ConfigError("shard() was called after the first batch.")
        self._collector.shard(rank, world_size)
        self._describe()
        self._prefetcher.share = rank

    def check_shares(self, number: int) -> None:
        """Raises ConfigError if the collector cannot be divided."""
        self._collector.check_shares(number)

    def use_workers(
        self, workers: int, stages: int = 1, *, at_once: bool = True, timeout: float = TIMEOUT
    ) -> None:
        """Have the collector step its environments in processes, which start with it."""
        self._collector.use_workers(workers, stages, at_once=False, timeout=timeout)

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A state to resume with when the environments are divided otherwise than before."""
        return self._collector.reshard([collector_state(state) for state in states])

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs; waits for the batches in progress and includes them."""
        state = self._prefetcher.state()
        return {
            "collector": state["collector"],
            OVERLAP: {
                "updates": self._updates,
                "frames": self.frames,
                "dropped": self.dropped,
                "batches": [batch.copy() for batch in self._prefetcher.batches],
                "rng": state["rng"],
            },
        }

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """How the collector differs from the saved one."""
        return mismatches(self._collector, saved["collector"] if OVERLAP in saved else saved)

    def fitting(self, saved: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The part that the collector can restore, without the batches collected ahead."""
        return fitting(self._collector, collector_state(saved))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a `state_dict`, also of another depth or of a plain collector.

        Raises:
            StateMismatchError: If the collector does not accept it.
        """
        own = state_dict["collector"] if OVERLAP in state_dict else state_dict
        ours = state_dict.get(OVERLAP, {})
        self._prefetcher.load(own, ours.get("rng"))
        self._prefetcher.put(ours.get("batches", []))
        self._updates = ours.get("updates", 0)
        self.frames = ours.get("frames", own.get("frames", 0))
        self.dropped = ours.get("dropped", 0)

    def _close(self) -> None:
        self._prefetcher.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._prefetcher.has_begun:
            raise TypeError(
                "a collector that has begun to collect ahead cannot be copied or pickled; give "
                "its state_dict() to another one."
            )
        return self.__dict__

    def __repr__(self) -> str:
        resumed = "exactly" if self.resumes == "exactly" else "with other random numbers"
        return (
            f"OverlappedCollector({self._collector!r}, depth={self.depth}, mode={self.mode}, "
            f"weights={self.weights}, resumed {resumed})"
        )


def _check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(
            f"OverlappedCollector({name}={value!r}): pass {' or '.join(map(repr, choices))}."
        )


Mode = Literal["process", "thread"]
_STREAM = 1  # separates the worker's random numbers from others with the run's seed


class Prefetcher:
    """Requests batches from a worker and returns them in order.

    The worker starts with the first request. Until then all calls go to the collector here;
    afterwards that one is closed, and the worker has a copy. `timing` receives the worker's times.
    `share` is the index of this learner among several, and `rng` the random state with which a
    process starts.
    """

    def __init__(self, collector: Collector, mode: Mode, *, newest: bool, timeout: float) -> None:
        self.timing = Timing()
        self.share = 0
        self.rng: dict[str, Any] | None = None
        self._collector = collector
        self._mode = mode
        self._newest = newest
        self._timeout = timeout
        self._worker: ProcessWorker | ThreadWorker | None = None
        self._ready: deque[TensorDictBase] = deque()
        self._under_way = 0
        self._sent = -1  # version of the weights that the worker has

    def __len__(self) -> int:
        return len(self._ready) + self._under_way

    @property
    def has_begun(self) -> bool:
        """Whether the worker has started."""
        return self._worker is not None

    @property
    def batches(self) -> list[TensorDictBase]:
        """The batches that are ready."""
        return list(self._ready)

    # -- batches ---------------------------------------------------------------------------------

    def ask(self, version: int) -> None:
        """Request a batch with the present weights, whose version is ``version``."""
        worker = self._worker or self.begin(version)
        with self.timing.phase("sync_weights"):
            weights = None if self._sent == version else self._weights()
            self._sent = version
            worker.send(Request("collect", (version, weights, self.timing.trace is not None)))
        self._under_way += 1

    def take(self) -> TensorDictBase:
        """Wait for the batch that was requested first."""
        return self._ready.popleft() if self._ready else self._receive()

    def put(self, batches: Iterable[TensorDictBase]) -> None:
        """Add batches that are ready."""
        self._ready.extend(batches)

    def wait(self) -> None:
        """Wait until all batches are ready."""
        while self._under_way:
            with suppress(StopIteration):  # raised again by the next request
                self._ready.append(self._receive())

    def discard(self) -> None:
        """Drop all batches."""
        while self._under_way:
            with suppress(StopIteration):
                self._receive()
        self._ready.clear()

    def _receive(self) -> TensorDictBase:
        assert self._worker is not None
        self._under_way -= 1  # an error is an answer too
        collected: Collected = self._worker.receive()
        for name, seconds in collected.times.items():
            self.timing.add(f"worker/{name}", seconds)
        if self.timing.trace is not None:
            name, pid = self._worker.name, self._worker.pid
            self.timing.trace.extend(collected.spans, thread=name, pid=pid)
        return stamped(collected.batch, collected.version)

    # -- weights ---------------------------------------------------------------------------------

    def publish(self, version: int) -> None:
        """Send the present weights for the next batch that starts."""
        if self._worker is not None and self._newest:
            self._worker.send(Request("adopt", (version, self._weights())))
            self._sent = version

    def _weights(self) -> Weights | None:
        # A thread gets copies; for a process they are copied when they are sent.
        return weights_of(self._collector.policy, copies=self._mode == "thread")

    # -- the worker ------------------------------------------------------------------------------

    def begin(self, version: int) -> ProcessWorker | ThreadWorker:
        """Start the worker with the present weights."""
        kind = ProcessWorker if self._mode == "process" else ThreadWorker
        self._worker = worker = kind(self._collector, self._newest, self._timeout)
        self._sent = version
        if self._mode == "process":
            self._seed_generators(self._collector.seed)
            if self.rng is not None:
                self._call("set_rng_state", self.rng)
        return worker

    def set_seed(self, seed: int) -> None:
        """Restart the environments and a process's random numbers."""
        self.discard()
        if self._worker is None:
            self._collector.set_seed(seed)
            return
        self._call("set_seed", seed)
        if self._mode == "process":
            self._seed_generators(seed)

    def reset(self) -> None:
        """Abandon the running episodes."""
        self.discard()
        if self._worker is not None:
            self._call("reset")
        else:
            self._collector.reset()

    def state(self) -> dict[str, Any]:
        """Wait for all batches; the collector's state and, in a process, the random generators'."""
        self.wait()
        if self._worker is None:
            return {"collector": self._collector.state_dict(), "rng": self.rng}
        state: dict[str, Any] = self._call("state")
        return state if self._mode == "process" else {**state, "rng": None}

    def load(self, state: dict[str, Any], rng: dict[str, Any] | None) -> None:
        """Restore what `state` returned."""
        self.discard()
        self.rng = rng
        self._sent = -1  # the worker has other weights
        if self._worker is None:
            self._collector.load_state_dict(state)
        else:
            self._call("load", state, rng)

    def close(self) -> None:
        """Stop the worker, during a batch if necessary."""
        if self._worker is None:
            self._collector.shutdown()
        else:
            self._worker.close()

    def _seed_generators(self, seed: int | None) -> None:
        entropy = torch.initial_seed() if seed is None else seed
        self._call("seed_generators", (entropy, self.share, _STREAM))

    def _call(self, method: str, *args: Any) -> Any:
        """Call a method of the worker; no batch may be in progress."""
        assert self._worker is not None
        self._worker.send(Request(method, args))
        return self._worker.receive()
