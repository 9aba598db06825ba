"""The thread or process that collects: it serves one request after another."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

import torch
from tensordict.nn import probabilistic

from ...base.worker import Channel, Worker
from ...errors import add_note
from ...loop.timing import Timing, Trace
from ...store.rng import rng_state, seed_all, set_rng_state
from ..collector import Collector, Weights
from ..messages import load, receive, send
from ..remote_collector import Collected, Status, collected, status_of

Answer = tuple[Collected, dict[str, float], list[tuple[Any, ...]]]
"""A batch and the status after it; seconds by phase; spans of a trace, if any."""
Request = tuple[Any, ...]
"""A method of `CollectorServer` and its arguments."""


class CollectorServer:
    """Serves requests with its own collector, one after another.

    Args:
        collector: The collector.
        entropy: Seeds the random numbers of a separate process.
        rng: Their state, if it resumes.
    """

    def __init__(
        self,
        collector: Collector,
        entropy: tuple[int, ...] | None = None,
        rng: dict[str, Any] | None = None,
    ) -> None:
        self._collector = collector
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._timing = Timing()
        collector.timing = self._timing
        collector.start()
        if entropy is not None:
            seed_all(entropy)
        if rng is not None:
            set_rng_state(rng)

    def put(self, request: Request | None) -> None:
        """Queue a request, ``None`` to end."""
        self._requests.put(request)

    def serve(self, answer: Callable[[Any], None], fail: Callable[[Exception], None]) -> None:
        """Serve requests until the queue ends, then close the collector."""
        try:
            while (request := self._requests.get()) is not None:
                method, *args = request
                try:
                    answer(getattr(self, method)(*args))
                except Exception as error:
                    fail(error)
        finally:
            self._collector.shutdown()

    def collect(self, version: int, weights: Weights | None, trace: bool) -> Answer:
        """Collect a batch with weights of this version, ``None`` if they are unchanged."""
        if weights is not None:
            self._collector.policy.load_state_dict(weights)
        self._timing.totals.clear()
        recorded = self._timing.trace = Trace() if trace else None
        start = perf_counter()
        batch = collected(self._collector, version)
        end = perf_counter()
        if recorded is not None:
            recorded.add("collect", start, end)
        totals = self._timing.totals.items()
        times = {name.removeprefix("collect/"): seconds for name, seconds in totals}
        spans = [] if recorded is None else [tuple(span) for span in recorded.take()]
        return batch, times or {"collect": end - start}, spans

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._collector.state_dict(), rng_state()

    def load(self, state: dict[str, Any], rng: dict[str, Any] | None) -> tuple[int, Status]:
        """Load a collector's state; return its frames and status."""
        self._collector.load_state_dict(state)
        if rng is not None:
            set_rng_state(rng)
        return self._collector.frames, status_of(self._collector)

    def load_share(self, states: list[dict[str, Any]]) -> tuple[int, Status]:
        """Begin new episodes after those of the collectors that shared the environments before."""
        return self.load(self._collector.reshard(states), None)

    def set_seed(self, seed: int, entropy: tuple[int, ...] | None) -> None:
        self._collector.set_seed(seed)
        if entropy is not None:
            seed_all(entropy)

    def reset(self) -> None:
        self._collector.reset()

    def process(self) -> int:
        """Number of this process."""
        return os.getpid()


_GRACE = 5.0  # seconds that a batch in progress has to end


class ThreadWorker:
    """A thread with its own collector."""

    name = "the collecting thread"
    pid: int | None = None

    def __init__(self, given: tuple[Collector, Any, Any], timeout: float) -> None:
        if not isinstance(shared := probabilistic._interaction_type, _PerThread):
            probabilistic._interaction_type = _PerThread(shared.get_mode())
        self._timeout = timeout
        self._answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
        self._server = server = CollectorServer(*given)
        # Daemonic, so that an environment that is stuck does not keep the process from ending.
        answers = self._answers
        thread = threading.Thread(
            target=server.serve,
            args=(lambda x: answers.put((x, None)), lambda error: answers.put((None, error))),
            name=self.name,
            daemon=True,
        )
        thread.start()
        # At the end of the interpreter too, which aborts while a thread is in code of torch.
        self._end = weakref.finalize(self, _end, server, thread)

    def call(self, *request: Any) -> None:
        self._server.put(request)

    def answer(self) -> Any:
        try:
            result, error = self._answers.get(timeout=self._timeout)
        except Empty:
            raise TimeoutError(
                f"{self.name} has not answered for {self._timeout:g} seconds."
            ) from None
        if error is not None:
            add_note(error, f"raised in {self.name}")
            raise error
        return result

    def close(self) -> None:
        if self._end():
            warnings.warn(
                f"{self.name} is still collecting after {_GRACE:g} seconds; it ends with the "
                "process, and closes its environments if it can.",
                RuntimeWarning,
                stacklevel=2,
            )


def _end(server: CollectorServer, thread: threading.Thread) -> bool:
    """End the thread; return whether it is still collecting after ``_GRACE`` seconds."""
    server.put(None)
    if thread is not threading.current_thread():  # which may collect garbage
        thread.join(_GRACE)
    return thread.is_alive()


class _PerThread(threading.local):
    """The interaction type of each thread, in the place of tensordict's, which all threads share.

    A deterministic evaluation in the learner would stop exploration in a collecting thread.
    """

    def __init__(self, first: Any) -> None:
        self._mode = first

    def get_mode(self) -> Any:
        return self._mode

    def set_mode(self, mode: Any) -> None:
        self._mode = mode


class ProcessWorker(Worker):
    """A process with its own collector, which ``given`` holds pickled."""

    def __init__(self, given: bytes, timeout: float) -> None:
        settings = (torch.get_num_threads(), torch.get_default_dtype())
        super().__init__("the collecting process", _work, given, *settings, timeout=timeout)

    def call(self, method: str, *args: Any) -> None:
        """Send a request."""
        send(self, (method, *args))

    def answer(self) -> Any:
        """Wait for the next answer."""
        return receive(self)


def _work(channel: Channel, given: bytes, threads: int, dtype: torch.dtype) -> None:
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    server = CollectorServer(*load(given))
    threading.Thread(target=_read, args=(channel, server), daemon=True).start()
    server.serve(lambda result: send(channel, result), channel.send_error)


def _read(channel: Channel, server: CollectorServer) -> None:
    """Queue requests at once, so that the learner can send at any time, until it closes."""
    try:
        while True:
            server.put(receive(channel))
    except (EOFError, OSError):
        server.put(None)
