"""`BackgroundSink`: a bounded queue and a writer thread in front of a sink.

Queueing a record takes the training thread about a microsecond. The writer waits for more records,
then writes and flushes them together. A full queue blocks the caller, and each request waits for
its turn, but no wait for a sink that makes no progress is long.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from .sink import Event, Scalars, Sink, log


class BackgroundSink(Sink):
    """Writes to `sink` in a thread, which starts at the first use.

    All calls of `sink` run in that thread. Its first exception is reported and disables it; loading
    a state enables it again. An unclosed sink is closed when the interpreter ends. Pickling
    flushes; a copy, and a forked child, start their own thread.

    A caller waits at most `patience` seconds for a sink that does not answer. One warning reports
    it; nothing waits for it until it has caught up. Meanwhile records are dropped if the queue is
    full, and a checkpoint stores no position.

    Args:
        sink: The sink.
        capacity: Records in a full queue.
        max_bytes: Bytes of images in a full queue.
        linger: Seconds the writer waits for more records.
        patience: Seconds a caller waits for space, for an answer, and for each record when closing.
        closing: Maximum seconds of closing, in addition to `Sink.closing`.

    Attributes:
        failure: The exception that disabled the sink, or `None`.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        capacity: int = 10_000,
        max_bytes: int = 256 << 20,
        linger: float = 0.5,
        patience: float = 5.0,
        closing: float = 30.0,
    ) -> None:
        super().__init__()
        self.sink = sink
        self.name = sink.name
        self.failure: BaseException | None = None
        self._limits: dict[str, Any] = {"capacity": capacity, "max_bytes": max_bytes}
        self._limits |= {"linger": linger, "patience": patience, "closing": closing}
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._is_closed = False

    def write(self, event: Event) -> None:
        """Queue one record; waits only if the queue is full."""
        size = 0
        if not isinstance(event, Scalars):
            size = sum(value.nbytes for value in event if isinstance(value, np.ndarray))
        self._start()
        with self._changed:
            if not self._has_room(size):
                self._is_urgent = True
                self._changed.notify_all()
                if self._is_late or not self._changed.wait_for(
                    lambda: self._has_room(size), self._bound(self._limits["patience"])
                ):
                    self._report_late("takes nothing more")
                    return
            self._bytes += size
            self._put(_Call("write", (event,), None))

    def write_scalars(self, event: Scalars) -> None:
        """Queue the metric values of one step."""
        self.write(event)

    def flush(self) -> None:
        """Wait until everything queued is written and flushed."""
        self._ask("flush")

    def close(self, status: str = "finished") -> None:
        """Write the queue, close the sink and end the thread; disable the sink on a timeout."""
        if self._is_closed or (self._thread is not None and self._pid != os.getpid()):
            return
        thread = self._start()
        self._is_closed = True
        patience = max(self._limits["patience"], self.sink.closing)
        until = monotonic() + self._bound(self._limits["closing"] + self.sink.closing)
        self.sink.deadline = until - 0.25
        answer, done = self._request("close", status), -1
        while done != self._done and (left := until - monotonic()) > 0:
            done = self._done
            with suppress(NoAnswerError):
                answer.result(min(patience, left))
                break
        self._thread = None
        if answer.done():
            thread.join(1.0)
        else:
            self._abandon()
        atexit.unregister(self.close)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after everything queued is written; empty without an answer."""
        return self._ask("state_dict") or {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue at a saved position."""
        self._ask("load_state_dict", state_dict)

    def how_to_view(self) -> str:
        """Return a command or path that shows what was logged."""
        return self.sink.how_to_view()

    # -- The training thread's end of the queue --------------------------------------------------

    def _start(self) -> threading.Thread:
        """Start the thread; in a forked child, where the queue is the parent's, a new one."""
        if self._thread is not None and self._pid == os.getpid():
            return self._thread
        self._pid, self._is_closed = os.getpid(), False
        self._changed = threading.Condition()
        self._queue: list[_Call] = []
        self._bytes = 0
        self._is_urgent = False
        self._is_late = False  # from a timeout until it has caught up
        self._done = 0
        self._step = 0
        self._thread = threading.Thread(
            target=self._run, name=f"hooktrainer-{self.name}", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)
        return self._thread

    def _has_room(self, size: int) -> bool:
        fits = not self._queue or self._bytes + size <= self._limits["max_bytes"]
        return len(self._queue) < self._limits["capacity"] and fits

    def _bound(self, seconds: float) -> float:
        return max(0.0, min(seconds, self.deadline - monotonic(), threading.TIMEOUT_MAX))

    def _put(self, call: _Call) -> None:
        self._queue.append(call)
        self._is_urgent = self._is_urgent or call.answer is not None
        if self._is_urgent or len(self._queue) == 1:  # else the writer is awake, or gathering
            self._changed.notify_all()

    def _request(self, method: str, *args: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        with self._changed:
            self._put(_Call(method, args, answer))
        return answer

    def _ask(self, method: str, *args: Any) -> Any:
        """Call a method in the writer and return its result, or `None` if it does not answer."""
        self._start()
        answer = self._request(method, *args)
        if not self.sink.is_awaited:
            return None
        try:
            return answer.result(0 if self._is_late else self._bound(self._limits["patience"]))
        except NoAnswerError:
            self._report_late("does not answer")
            return None

    def _report_late(self, what: str) -> None:
        if not self._is_late:
            self._is_late = True
            log.warning(
                "Logger %r %s: training goes on without waiting for it, and what is logged from "
                "step %d on may be missing from it.",
                self.name,
                what,
                self._step,
            )

    def _abandon(self) -> None:
        with self._changed:
            self._is_late = True
            left = sum(call.answer is None for call in self._queue)
            self._queue.clear()
        why = f"it was not closed in time; {left} records or more were not written"
        self._disable(TimeoutError(f"{why}. {self.sink.hint}".rstrip()))

    # -- The writer ------------------------------------------------------------------------------

    def _run(self) -> None:
        method = ""
        while method != "close" and self._thread is threading.current_thread():
            for method, args, answer in self._next_calls():
                if method == "write":
                    self._step = args[0].step
                elif method == "load_state_dict":
                    self.failure = None
                result = self._attempt(method, *args, always=answer is not None)
                self._done += 1
                if answer is not None:
                    answer.set_result(result)
            self._attempt("flush")
            self._is_late = False

    def _next_calls(self) -> list[_Call]:
        with self._changed:
            self._changed.wait_for(lambda: self._queue)
            self._changed.wait_for(lambda: self._is_urgent, timeout=self._limits["linger"])
            calls, self._queue = self._queue, []
            self._bytes, self._is_urgent = 0, False
            self._changed.notify_all()
        return calls

    def _attempt(self, method: str, *args: Any, always: bool = False) -> Any:
        if self.failure is None or (always and method != "flush"):
            try:
                return getattr(self.sink, method)(*args)
            except BaseException as error:  # a dead writer would leave its callers waiting
                self._disable(error)
        return None

    def _disable(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            log.error(
                "Logger %r failed and is switched off; training goes on, but what is logged from "
                "step %d on may be missing from it. Reason: %s: %s",
                self.sink,
                self._step,
                type(error).__name__,
                error,
            )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._thread is not None:
            self.flush()
        return functools.partial(BackgroundSink, **self._limits), (self.sink,)

    def __repr__(self) -> str:
        return repr(self.sink)


class _Call(NamedTuple):
    """A call of the sink in the queue; `answer`, if any, gets its result."""

    method: str
    args: tuple[Any, ...]
    answer: Future[Any] | None
