"""What goes on in the thread or process that collects: one request after another."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch

from ...loop.timing import Span, Timing, Trace
from ...store.rng import rng_state, set_rng_state
from ..collector import Collector
from ..weights import Weights


class Request(NamedTuple):
    """What the learner asks for: a method of `CollectorServer` and its arguments.

    Each is answered, but for `adopt`, which brings weights.
    """

    method: str
    args: tuple[Any, ...] = ()


class Collected(NamedTuple):
    """The answer to a request for a batch.

    Attributes:
        batch: The batch.
        version: Version of the weights that collected it.
        times: Seconds by phase that it took.
        spans: What was done when, if that was asked for.
    """

    batch: Any
    version: int
    times: dict[str, float]
    spans: list[Span]


class Inbox:
    """The requests that have come and were not served yet.

    Requests are put there as they come, so that the learner never waits to get rid of one.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Request | None] = SimpleQueue()
        self._seen: deque[Request | None] = deque()

    def put(self, request: Request | None) -> None:
        """Add a request; ``None`` says that there will be no more."""
        self._queue.put(request)

    def get(self) -> Request | None:
        """Wait for the next request."""
        return self._seen.popleft() if self._seen else self._queue.get()

    def take_newest(self) -> tuple[int, Weights] | None:
        """Take the weights out of all requests that wait; the last ones and their version."""
        with suppress(Empty):
            while True:
                self._seen.append(self._queue.get_nowait())
        newest = None
        for place, request in enumerate(self._seen):
            if request is not None and request.method in ("collect", "adopt"):
                version, weights, *rest = request.args
                if weights is not None:
                    newest = version, weights
                    self._seen[place] = Request(request.method, (version, None, *rest))
        return newest


class CollectorServer:
    """Collects with a collector that nobody else uses.

    Args:
        collector: The collector, with a policy of its own.
        inbox: Where requests come in.
        newest: Whether a batch is collected with the newest weights there are, not with those it
            was asked for with.

    Attributes:
        is_busy: Whether a request is being served.
    """

    def __init__(self, collector: Collector, inbox: Inbox, newest: bool) -> None:
        self._collector = collector
        self._inbox = inbox
        self._newest = newest
        self.is_busy = False
        self._version = -1
        self._weights: Weights | None = None
        self._timing = Timing()
        collector.timing = self._timing
        collector.start()

    def serve(self, answer: Callable[[Any], None], fail: Callable[[Exception], None]) -> None:
        """Serve requests until there are no more, then close the collector."""
        try:
            while (request := self._inbox.get()) is not None:
                if request.method == "adopt":
                    self.adopt(*request.args)
                    continue
                self.is_busy = True
                try:
                    result = getattr(self, request.method)(*request.args)
                except Exception as error:
                    fail(error)
                else:
                    answer(result)
                finally:
                    self.is_busy = False
        finally:
            self._collector.shutdown()

    def adopt(self, version: int, weights: Weights | None) -> None:
        """Take up weights; ``None`` if they are those that are there, or were taken before."""
        if weights is not None:
            self._weights = weights  # loaded when they are needed, where an error has an answer
        self._version = max(self._version, version)

    def collect(self, version: int, weights: Weights | None, trace: bool) -> Collected:
        """Collect a batch.

        Args:
            version: Version of the weights to use.
            weights: The weights, unless they are those of the batch before.
            trace: Whether to record what is done when.
        """
        self.adopt(version, weights)
        if self._newest and (newest := self._inbox.take_newest()) is not None:
            self.adopt(*newest)
        if self._weights is not None:
            weights, self._weights = self._weights, None
            self._collector.policy.load_state_dict(weights)
        before = dict(self._timing.totals)
        self._timing.trace = Trace() if trace else None
        start = perf_counter()
        batch = self._collector.collect()
        end = perf_counter()
        self._timing.span("collect", start, end)
        times = {
            name.removeprefix("collect/"): seconds - before.get(name, 0.0)
            for name, seconds in self._timing.totals.items()
        }
        spans = self._timing.trace.take() if self._timing.trace is not None else []
        return Collected(batch, self._version, times or {"collect": end - start}, spans)

    def state(self) -> dict[str, Any]:
        """The collector's state and that of the random generators."""
        return {"collector": self._collector.state_dict(), "rng": rng_state()}

    def load(self, state: dict[str, Any], rng: dict[str, Any] | None) -> None:
        """Take up a collector's state and, if given, that of the random generators."""
        self._version, self._weights = -1, None
        self._collector.load_state_dict(state)
        if rng is not None:
            set_rng_state(rng)

    def set_rng_state(self, rng: dict[str, Any]) -> None:
        """Take up the state of the random generators."""
        set_rng_state(rng)

    def set_seed(self, seed: int) -> None:
        """Have the environments start over."""
        self._collector.set_seed(seed)

    def seed_generators(self, entropy: tuple[int, ...]) -> None:
        """Seed the global random generators."""
        seed = int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)

    def reset(self) -> None:
        """Abandon the running episodes."""
        self._collector.reset()
