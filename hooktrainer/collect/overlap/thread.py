"""Collecting in a thread of the learner's process."""

from __future__ import annotations

import copy
import threading
import warnings
from queue import Empty, SimpleQueue
from typing import Any

from tensordict.nn import probabilistic

from ...errors import ConfigError, add_note
from .server import CollectorServer, Inbox, Request

_GRACE = 5.0  # seconds that a batch under way has to end


class ThreadWorker:
    """A thread that collects with a copy of a collector.

    Args:
        collector: The collector. It is shut down: the copy has environments of its own.
        newest: See `CollectorServer`.
        timeout: Seconds to wait for an answer.

    Attributes:
        name: For messages and traces.
        pid: ``None``: it is in this process.

    Raises:
        ConfigError: If the collector cannot be copied.
    """

    name = "the collecting thread"
    pid: int | None = None

    def __init__(self, collector: Any, newest: bool, timeout: float) -> None:
        try:
            own = copy.deepcopy(collector)
        except Exception as error:
            raise ConfigError(
                f"{type(collector).__name__} cannot be copied for another thread: {error}. Give it "
                "environments by id or factory, and a policy that copy.deepcopy takes."
            ) from error
        collector.shutdown()
        _INTERACTION_TYPES.separate()
        self._timeout = timeout
        self._inbox = Inbox()
        self._answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
        server = CollectorServer(own, self._inbox, newest)
        # Daemonic, so that an environment that is stuck does not keep the process from ending.
        self._thread = threading.Thread(
            target=server.serve,
            args=(
                lambda result: self._answers.put((result, None)),
                lambda error: self._answers.put((None, error)),
            ),
            name=self.name,
            daemon=True,
        )
        self._thread.start()

    def send(self, request: Request) -> None:
        """Send a request."""
        self._inbox.put(request)

    def receive(self) -> Any:
        """Wait for the next answer, and return it or raise what was raised there."""
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
        """Have the thread end, after the batch under way."""
        self._inbox.put(None)
        self._thread.join(_GRACE)
        if self._thread.is_alive():
            warnings.warn(
                f"{self.name} is still in a step of an environment after {_GRACE:g} seconds; it "
                "ends with the process, and closes its environments if it can.",
                RuntimeWarning,
                stacklevel=2,
            )
        else:
            _INTERACTION_TYPES.join()


class _PerThread(threading.local):
    """What `tensordict.nn.set_interaction_type` sets, for each thread apart."""

    def __init__(self, first: Any) -> None:
        self._mode = first

    def get_mode(self) -> Any:
        return self._mode

    def set_mode(self, mode: Any) -> None:
        self._mode = mode


class _InteractionTypes:
    """Keeps the interaction types of threads apart while threads collect.

    tensordict has one place for all threads, a variable of its own that nothing public reaches:
    while the learner evaluates deterministically, a thread that collects would stop exploring. So
    another object takes its place for as long as such threads live, and no longer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._shared: Any = None

    def separate(self) -> None:
        """One more thread begins to collect."""
        with self._lock:
            if not self._threads:
                self._shared = probabilistic._interaction_type
                probabilistic._interaction_type = _PerThread(self._shared.get_mode())
            self._threads += 1

    def join(self) -> None:
        """One has ended; after the last, all is as it was, in the mode that this thread is in."""
        with self._lock:
            self._threads -= 1
            if not self._threads:
                self._shared.set_mode(probabilistic._interaction_type.get_mode())
                probabilistic._interaction_type = self._shared


_INTERACTION_TYPES = _InteractionTypes()  # one for the process, as what it replaces is
