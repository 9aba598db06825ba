"""`BackgroundSink`: one bounded queue and one writer thread in front of any sink.

Giving a record to the queue costs the training thread about a microsecond, whatever the sink
does with it. The writer sleeps until something arrives, lets a little more gather, writes all of
it and flushes, so a database sees batches. A full queue makes the caller wait: nothing is dropped.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from .events import Event, Scalars, payload_bytes
from .sink import GuardedSink, Sink


class BackgroundSink(Sink):
    """Writes to `sink` on a thread of its own, which starts at the first write.

    Everything that touches `sink` while that thread lives runs on it. What is still queued when the
    object dies or the interpreter exits is written then. Pickling flushes; a copy, and a forked
    child, start their own queue and thread.

    Args:
        sink: The sink to write to. Its failures are reported once and end its use, see
            `GuardedSink`.
        capacity: Records the queue holds before a caller has to wait.
        max_bytes: Bytes of pictures the queue holds before a caller has to wait.
        linger: Seconds the writer waits for more before it writes what there is.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        capacity: int = 10_000,
        max_bytes: int = 256 << 20,
        linger: float = 0.5,
    ) -> None:
        super().__init__()
        self.name = sink.name
        self.guarded = sink if isinstance(sink, GuardedSink) else GuardedSink(sink)
        self._limits = (capacity, max_bytes, linger)
        self._writer: _Writer | None = None

    @property
    def failure(self) -> BaseException | None:
        """The exception that ended the use of the sink, or `None`."""
        return self.guarded.failure

    def write(self, event: Event) -> None:
        """Queue one record; waits only if the queue is full."""
        writer = self._live() or self._start()
        writer.put(event)

    def write_scalars(self, event: Scalars) -> None:
        """Queue the metric values of one step."""
        self.write(event)

    def flush(self) -> None:
        """Wait until everything queued so far is written and flushed."""
        self._ask("flush")

    def sync(self) -> None:
        """Have everything queued so far made durable; does not wait for the disk."""
        if (writer := self._live()) is None:
            self.guarded.sync()
        else:
            writer.put(_Request("sync", ()))

    def close(self, status: str = "finished") -> None:
        """Write what is queued, close the sink and end the thread."""
        self._ask("close", status)
        if (writer := self._live()) is not None:
            writer.stop()
        self._writer = None

    def state_dict(self) -> dict[str, Any]:
        """Position of the sink once everything queued so far is written."""
        return self._ask("state_dict")

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue at a saved position."""
        self._ask("load_state_dict", state_dict)

    def how_to_view(self) -> str:
        """Return a command or path that shows what was logged."""
        return self.guarded.how_to_view()

    def _live(self) -> _Writer | None:
        if self._writer is not None and self._writer.pid != os.getpid():
            self._writer = None  # a forked child: the queue and its thread are the parent's
            self.guarded.after_fork()
        return self._writer

    def _start(self) -> _Writer:
        self._writer = _Writer(self.guarded, *self._limits)
        # The finalizer must not refer to this object, or it would never be collected.
        weakref.finalize(self, _Writer.finish, self._writer)
        return self._writer

    def _ask(self, method: str, *args: Any) -> Any:
        if (writer := self._live()) is None:
            return getattr(self.guarded, method)(*args)
        request = _Request(method, args)
        writer.put(request, hurry=True)
        return request.answer.result()

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return {**self.__dict__, "_writer": None}

    def __repr__(self) -> str:
        return repr(self.guarded)


class _Request:
    """A call that takes its turn in the queue; `answer` holds its result."""

    def __init__(self, method: str, args: tuple[Any, ...]) -> None:
        self.method = method
        self.args = args
        self.answer: Future[Any] = Future()


class _Writer:
    """The queue and the thread that empties it."""

    def __init__(self, sink: GuardedSink, capacity: int, max_bytes: int, linger: float) -> None:
        self.pid = os.getpid()
        self._sink = sink
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._linger = linger
        self._changed = threading.Condition()
        self._queue: list[Event | _Request] = []
        self._bytes = 0
        self._hurry = False
        self._stopping = False
        self._thread = threading.Thread(
            target=self._run, name=f"hooktrainer-{sink.name}", daemon=True
        )
        self._thread.start()

    def put(self, item: Event | _Request, *, hurry: bool = False) -> None:
        size = 0 if isinstance(item, (Scalars, _Request)) else payload_bytes(item)
        with self._changed:
            # Who is in a hurry waits for an answer anyway, or is the writer itself at its end.
            while not hurry and (
                len(self._queue) >= self._capacity
                or (self._queue and self._bytes + size > self._max_bytes)
            ):
                self._hurry = True
                self._changed.notify_all()
                self._changed.wait()
            self._queue.append(item)
            self._bytes += size
            self._hurry = self._hurry or hurry
            if hurry or len(self._queue) == 1:  # else the writer is awake, or gathering
                self._changed.notify_all()

    def stop(self) -> None:
        """End the thread once the queue is empty."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        # A collection of garbage can bring the finalizer, and so this call, to the thread itself.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def finish(self) -> None:
        """Write what is left and close the sink; for a logger that nobody closed."""
        if self._thread.is_alive() and self.pid == os.getpid():
            self.put(_Request("close", ()), hurry=True)
            self.stop()

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
            self._sink.flush()

    def _next_batch(self) -> list[Event | _Request]:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._stopping)
            self._changed.wait_for(lambda: self._hurry or self._stopping, timeout=self._linger)
            batch, self._queue = self._queue, []
            self._bytes = 0
            self._hurry = False
            self._changed.notify_all()
        return batch
