"""The batches ahead of the learner, and the thread or process that collects them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal

import torch
from tensordict import TensorDictBase

from ...loop.timing import Timing
from ..collector import Collector
from ..remote_collector import stamped
from ..weights import Weights, weights_of
from .process import ProcessWorker
from .server import Collected, Request
from .thread import ThreadWorker

Mode = Literal["process", "thread"]
_STREAM = 1  # tells the worker's random numbers from others that are drawn with the run's seed


class Prefetcher:
    """The batches that are ready or under way, in order, and what collects them.

    The worker starts with the first batch that is asked for. Until then the collector is here, and
    everything is done with it; afterwards it is closed, and a copy works elsewhere.

    Args:
        collector: The collector. Its policy stays the learner's.
        mode: Where the copy works.
        newest: Whether batches are collected with the newest weights there are.
        timeout: Seconds to wait for an answer.

    Attributes:
        timing: Where the worker's times go.
        share: Which of several learners this is; each has random numbers of its own.
        rng: State of the random generators that a process begins with.
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
        """Whether there is a worker."""
        return self._worker is not None

    @property
    def batches(self) -> list[TensorDictBase]:
        """The batches that are ready."""
        return list(self._ready)

    # -- batches ---------------------------------------------------------------------------------

    def ask(self, version: int) -> None:
        """Ask for a batch with the weights as they are, which have this version."""
        worker = self._worker or self.begin(version)
        with self.timing.phase("sync_weights"):
            weights = None if self._sent == version else self._weights()
            self._sent = version
            worker.send(Request("collect", (version, weights, self.timing.trace is not None)))
        self._under_way += 1

    def take(self) -> TensorDictBase:
        """The batch that was asked for first; waits for it."""
        return self._ready.popleft() if self._ready else self._receive()

    def put(self, batches: Iterable[TensorDictBase]) -> None:
        """Add batches that are ready."""
        self._ready.extend(batches)

    def wait(self) -> None:
        """Wait until all batches are ready."""
        while self._under_way:
            with suppress(StopIteration):  # the collector has ended, as it says when asked again
                self._ready.append(self._receive())

    def discard(self) -> None:
        """Throw all batches away."""
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
        """Hand over the weights as they are, for the next batch that is begun."""
        if self._worker is not None and self._newest:
            self._worker.send(Request("adopt", (version, self._weights())))
            self._sent = version

    def _weights(self) -> Weights | None:
        # A thread gets copies; for a process they are copied when they are sent.
        return weights_of(self._collector.policy, copies=self._mode == "thread")

    # -- the worker ------------------------------------------------------------------------------

    def begin(self, version: int) -> ProcessWorker | ThreadWorker:
        """Start the worker, with the weights as they are."""
        kind = ProcessWorker if self._mode == "process" else ThreadWorker
        self._worker = worker = kind(self._collector, self._newest, self._timeout)
        self._sent = version
        if self._mode == "process":
            self._seed_generators(self._collector.seed)
            if self.rng is not None:
                self._call("set_rng_state", self.rng)
        return worker

    def set_seed(self, seed: int) -> None:
        """Have the environments start over, and a process's random numbers."""
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
        """State of the collector and, in a process, of the random generators; after all batches."""
        self.wait()
        if self._worker is None:
            return {"collector": self._collector.state_dict(), "rng": self.rng}
        state: dict[str, Any] = self._call("state")
        return state if self._mode == "process" else {**state, "rng": None}

    def load(self, state: dict[str, Any], rng: dict[str, Any] | None) -> None:
        """Take up what `state` returned."""
        self.discard()
        self.rng = rng
        self._sent = -1  # whatever the worker has, it is not these
        if self._worker is None:
            self._collector.load_state_dict(state)
        else:
            self._call("load", state, rng)

    def close(self) -> None:
        """End the worker, in the middle of a batch if need be."""
        if self._worker is None:
            self._collector.shutdown()
        else:
            self._worker.close()

    def _seed_generators(self, seed: int | None) -> None:
        entropy = torch.initial_seed() if seed is None else seed
        self._call("seed_generators", (entropy, self.share, _STREAM))

    def _call(self, method: str, *args: Any) -> Any:
        """Have the worker do something else; no batch may be under way."""
        assert self._worker is not None
        self._worker.send(Request(method, args))
        return self._worker.receive()
