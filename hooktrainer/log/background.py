"""`BackgroundSink`: a bounded queue and a writer thread in front of a sink.

Queueing a record takes the training thread about a microsecond. The writer waits for more records,
then writes and flushes them together. A full queue blocks the caller, and each request waits for
its turn, but no wait for a sink that makes no progress is long.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

from .sink import Event, GuardedSink, Scalars, Sink, log, payload_bytes


class BackgroundSink(Sink):
    """Writes to `sink` in a thread, which starts at the first use.

    All calls of `sink` run in that thread. Records still queued when the object or the interpreter
    ends are written then. Pickling flushes; a copy, and a forked child, start their own thread.

    A caller waits at most `patience` seconds for a sink that does not answer. One warning reports
    it; nothing waits for it until it has caught up. Meanwhile records are dropped if the queue is
    full, and a checkpoint stores the position of `Sink.state_at`.

    Args:
        sink: The sink. Its first failure is reported and disables it; see `GuardedSink`.
        capacity: Records in a full queue.
        max_bytes: Bytes of images in a full queue.
        linger: Seconds the writer waits for more records.
        patience: Seconds a caller waits for space, for an answer, and for each record when closing.
        closing: Maximum seconds of closing, in addition to `Sink.closing`.
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
        self.name = sink.name
        self.guarded = GuardedSink(sink)
        self._limits = (capacity, max_bytes, linger)
        self._patience = patience
        self._closing = closing
        self._step = 0
        self._writer: _Writer | None = None

    @property
    def failure(self) -> BaseException | None:
        """The exception that disabled the sink, or `None`."""
        return self.guarded.failure

    def write(self, event: Event) -> None:
        """Queue one record; waits only if the queue is full."""
        self._step = event.step
        writer = self._live()
        if not writer.put(event, patience=self._bound(self._patience)):
            self._report_late(writer, "takes nothing more")

    def write_scalars(self, event: Scalars) -> None:
        """Queue the metric values of one step."""
        self.write(event)

    def flush(self) -> None:
        """Wait until everything queued is written and flushed."""
        self._ask("flush")

    def sync(self) -> None:
        """Request a sync, without waiting for the disk."""
        self._live().put(_Request("sync", (), Future()))

    def close(self, status: str = "finished") -> None:
        """Write the queue, close the sink and end the thread, within time limits."""
        writer = self._live()
        self._writer = None
        patience, seconds = self._closing_times()
        writer.close(status, patience, self._bound(seconds))

    def state_dict(self) -> dict[str, Any]:
        """Return the position after everything queued is written."""
        step = self._step
        state: dict[str, Any] | None = self._ask("state_dict")
        return self.guarded.state_at(step) if state is None else state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue at a saved position."""
        self._ask("load_state_dict", state_dict)

    def set_deadline(self, deadline: float) -> None:
        """Do not wait for the sink beyond ``deadline``."""
        super().set_deadline(deadline)
        self.guarded.set_deadline(deadline)

    def how_to_view(self) -> str:
        """Return a command or path that shows what was logged."""
        return self.guarded.how_to_view()

    def replace(self, sink: Sink) -> None:
        """Replace the sink before anything was written."""
        if self.deadline < math.inf:
            sink.set_deadline(self.deadline)
        self.guarded.sink = sink

    def _bound(self, seconds: float) -> float:
        return max(0.0, min(seconds, self.deadline - monotonic()))

    def _live(self) -> _Writer:
        if self._writer is not None and self._writer.pid != os.getpid():
            self._writer = None  # a forked child: the queue and its thread are the parent's
            self.guarded.after_fork()
        if self._writer is None:
            self._writer = _Writer(self.guarded, *self._limits)
            # The finalizer must not refer to this object, or it would never be collected.
            weakref.finalize(self, _Writer.close, self._writer, "finished", *self._closing_times())
        return self._writer

    def _closing_times(self) -> tuple[float, float]:
        """Return the seconds to wait without progress and altogether."""
        own = self.guarded.closing
        return max(self._patience, own), self._closing + own

    def _ask(self, method: str, *args: Any) -> Any:
        """Call a method in the writer and return its result, or `None` if it does not answer."""
        writer, request = self._live(), _Request(method, args, Future())
        writer.put(request, urgent=True)
        try:
            return request.answer.result(0 if writer.is_late else self._bound(self._patience))
        except NoAnswerError:
            self._report_late(writer, "does not answer")
            return None

    def _report_late(self, writer: _Writer, what: str) -> None:
        if not writer.is_late:
            writer.is_late = True
            log.warning(
                "Logger %r %s: training goes on without waiting for it, and what is logged from "
                "step %d on may be missing from it.",
                self.name,
                what,
                self._step,
            )

    def __getstate__(self) -> dict[str, Any]:
        if self._writer is not None:
            self.flush()
        return {**self.__dict__, "_writer": None, "deadline": math.inf}

    def __repr__(self) -> str:
        return repr(self.guarded)


class _Request(NamedTuple):
    """A call in the queue; `answer` gets its result."""

    method: str
    args: tuple[Any, ...]
    answer: Future[Any]


class _Writer:
    """The queue and its thread; `is_late` from a timeout until it has caught up."""

    def __init__(self, sink: GuardedSink, capacity: int, max_bytes: int, linger: float) -> None:
        self.pid = os.getpid()
        self.is_late = False
        self._sink = sink
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._linger = linger
        self._changed = threading.Condition()
        self._queue: list[Event | _Request] = []
        self._bytes = 0
        self._urgent = False
        self._stopping = False
        self._done = 0  # items
        self._thread = threading.Thread(
            target=self._run, name=f"hooktrainer-{sink.name}", daemon=True
        )
        self._thread.start()

    def put(
        self, item: Event | _Request, *, urgent: bool = False, patience: float = math.inf
    ) -> bool:
        """Queue an item; return `False` if there was no space in time."""
        size = 0 if isinstance(item, Scalars | _Request) else payload_bytes(item)
        with self._changed:
            if not isinstance(item, _Request) and not self._has_room(size):
                self._urgent = True
                self._changed.notify_all()
                if self.is_late or not self._changed.wait_for(
                    lambda: self._has_room(size), min(patience, threading.TIMEOUT_MAX)
                ):
                    return False
            self._queue.append(item)
            self._bytes += size
            self._urgent = self._urgent or urgent
            if urgent or len(self._queue) == 1:  # else the writer is awake, or gathering
                self._changed.notify_all()
        return True

    def close(self, status: str, patience: float, seconds: float) -> None:
        """Write the queue, close the sink and end the thread; disable the sink on a timeout.

        Wait `patience` for each item, and `seconds` altogether.
        """
        if self._stopping or self.pid != os.getpid():
            return
        request = _Request("close", (status,), Future())
        self.put(request, urgent=True)
        # A collection of garbage can bring the finalizer, and so this call, to the thread itself.
        if threading.current_thread() is not self._thread:
            done, until = -1, monotonic() + seconds
            while done != self._done and (left := until - monotonic()) > 0:
                done = self._done
                with suppress(NoAnswerError):
                    request.answer.result(min(patience, left))
                    break
            else:
                self._abandon()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread and self._sink.failure is None:
            self._thread.join(seconds)

    def _abandon(self) -> None:
        with self._changed:
            self.is_late = True
            left = sum(not isinstance(item, _Request) for item in self._queue)
            self._queue.clear()
        self._sink.disable(
            TimeoutError(f"it was not closed in time; {left} records or more were not written")
        )

    def _has_room(self, size: int) -> bool:
        fits = not self._queue or self._bytes + size <= self._max_bytes
        return len(self._queue) < self._capacity and fits

    def _run(self) -> None:
        while batch := self._next_batch():
            for item in batch:
                try:
                    if isinstance(item, _Request):
                        item.answer.set_result(getattr(self._sink, item.method)(*item.args))
                    else:
                        self._sink.write(item)
                except BaseException as error:  # a dead writer would leave its callers waiting
                    self._sink.disable(error)
                    if isinstance(item, _Request) and not item.answer.done():
                        item.answer.set_exception(error)
                self._done += 1
            self._sink.flush()
            self.is_late = self._stopping and self.is_late

    def _next_batch(self) -> list[Event | _Request]:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._stopping)
            self._changed.wait_for(lambda: self._urgent or self._stopping, timeout=self._linger)
            batch, self._queue = self._queue, []
            self._bytes = 0
            self._urgent = False
            self._changed.notify_all()
        return batch
