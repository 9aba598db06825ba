"""Timing of the phases and hooks of a run, cheap enough to be always on."""

from __future__ import annotations

import json
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..base.fs import write_atomically

if TYPE_CHECKING:
    from rich.table import Table

HOOK_PREFIX = "hook/"


class Timing:
    """Adds up the seconds of named phases, over the run and over the log window.

    *Serial* phases follow one another: ``collect``, ``advantages``, ``optimize``, ``sync_weights``,
    ``evaluate``, ``log``, ``checkpoint``, ``hooks`` (other hooks outside ``optimize``) and any name
    without a slash that a hook measures. A nested serial phase is subtracted from the outer one, so
    together they make up ``step``, the whole time of a batch.

    A name with a slash is a part of something: ``collect/env`` of ``collect``, ``hook/<name>`` is
    one hook, ``worker/<name>`` another thread or process.

    Attributes:
        totals: Seconds by name, since this object was created.
        hooks: Phase of each ``hook/<name>``.
        trace: Records spans; ``None`` if no trace is recorded.
        listeners: Their ``begin(phase)`` and ``end(phase)`` are called for every serial phase.
        reports: Whether windows are reported; true on one of several processes.
    """

    def __init__(self) -> None:
        self.totals: defaultdict[str, float] = defaultdict(float)
        self.hooks: dict[str, str] = {}
        self.trace: Trace | None = None
        self.listeners: tuple[Any, ...] = ()
        self.reports = True
        self._within: list[float] = []  # for each phase under way, what is to be taken out of it
        self._lap_start = 0.0
        self._window_start: dict[str, float] = {}
        self._window_frames = 0
        self._window_batches = 0

    # -- measuring -------------------------------------------------------------------------------

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the block as phase ``name``, in the training thread; others use `add`."""
        start = self.begin(name)
        try:
            yield
        finally:
            self.end(name, start)

    def add(self, name: str, seconds: float) -> None:
        """Add ``seconds`` to ``name``, without subtracting them elsewhere."""
        self.totals[name] += seconds

    def span(self, name: str, start: float, end: float) -> None:
        """Record a span if a trace is being recorded; adds to no phase."""
        if self.trace is not None:
            self.trace.add(name, start, end)

    def traced(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``call``, or while a trace is recorded a wrapper that records each call."""
        if self.trace is None:
            return call

        def recorded(*args: Any) -> Any:
            start = perf_counter()
            try:
                return call(*args)
            finally:
                self.span(name, start, perf_counter())

        return recorded

    def begin(self, phase: str) -> float:
        """Begin a phase and return the start time that `end` takes."""
        if self.listeners and "/" not in phase:
            for listener in self.listeners:
                listener.begin(phase)
        self._within.append(0.0)
        return perf_counter()

    def end(self, phase: str, start: float, hook: str = "") -> None:
        """End the innermost phase."""
        end = perf_counter()
        seconds = end - start
        within = self._within.pop()
        is_part = "/" in phase
        self.totals[phase] += seconds if is_part else seconds - within
        if self._within:
            self._within[-1] += within if is_part else seconds
        if hook:
            self.totals[hook] += seconds
        if self.trace is not None:
            part = f"/{hook.removeprefix(HOOK_PREFIX)}" if hook else ""
            self.trace.add(f"{phase}{part}", start, end)
        if self.listeners and not is_part:
            for listener in self.listeners:
                listener.end(phase)

    def end_hook(self, hook: str, start: float) -> None:
        """End a hook of the inner loop."""
        end = perf_counter()
        self.totals[hook] += end - start
        if self.trace is not None:
            self.trace.add(f"optimize/{hook.removeprefix(HOOK_PREFIX)}", start, end)

    # -- laps and windows ------------------------------------------------------------------------

    def start_lap(self) -> None:
        """Begin the first lap."""
        self._lap_start = perf_counter()

    def lap(self, span: str = "step") -> float:
        """End a lap and begin the next; add its seconds to ``step`` and return them."""
        start, self._lap_start = self._lap_start, perf_counter()
        seconds = self._lap_start - start
        self.totals["step"] += seconds
        self.span(span, start, self._lap_start)
        return seconds

    def close_window(self, frames: int, batches: int) -> dict[str, float]:
        """Report the current window and begin the next one.

        Args:
            frames: Frames collected so far.
            batches: Batches collected so far.

        Returns:
            ``time/<name>`` in seconds per batch and ``time/fps`` in frames per second; empty if the
            window holds no batch.
        """
        new_batches = batches - self._window_batches
        if new_batches <= 0 or not self.reports:
            return {}
        seconds = {
            name: total - self._window_start.get(name, 0.0) for name, total in self.totals.items()
        }
        report = {f"time/{name}": spent / new_batches for name, spent in seconds.items()}
        if seconds.get("step", 0.0) > 0.0:
            report["time/fps"] = (frames - self._window_frames) / seconds["step"]
        self.start_window(frames, batches)
        return report

    def start_window(self, frames: int, batches: int) -> None:
        """Begin a window without reporting one, as at the start of a resumed run."""
        self._window_start = dict(self.totals)
        self._window_frames, self._window_batches = frames, batches

    def table(self) -> Table:
        """Return the time of the run as a `rich` table."""
        from .time_table import time_table

        return time_table(self.totals, self.hooks)

    def __getstate__(self) -> dict[str, Any]:
        # What listens, what is recorded and what is under way belong to this process.
        return self.__dict__ | {"trace": None, "listeners": (), "_within": []}


# -- `Trace`: what happened when, in the format that chrome://tracing and Perfetto read.

_LIMIT: Final = 1_000_000  # spans; each takes some hundred bytes of memory and of the file


class Span(NamedTuple):
    """A named time span."""

    name: str
    start: float
    end: float


class Trace:
    """Collects spans by thread and writes them as one file."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._count = 0
        self._own: dict[int, list[Span]] = {}  # by thread of this process
        # By process, its name, thread, and the thread's number if it is of this process.
        self._threads: dict[tuple[int, str, str, int], list[Span]] = {}

    def add(self, name: str, start: float, end: float) -> None:
        """Add a span of the calling thread; see `Span`."""
        self._count += 1
        if self._count > self._limit:
            return
        spans = self._own.get(get_ident())
        if spans is None:
            spans = self._own[get_ident()] = []
            thread = threading.current_thread().name
            self._threads[os.getpid(), "hooktrainer", thread, get_ident()] = spans
        spans.append(Span(name, start, end))

    def extend(
        self,
        spans: Iterable[tuple[str, float, float]],
        *,
        thread: str,
        pid: int | None = None,
        process: str = "",
    ) -> None:
        """Add spans of another thread or process of this machine."""
        pid = os.getpid() if pid is None else pid
        name = "hooktrainer" if pid == os.getpid() else process or thread
        added = [Span(*span) for span in spans]
        room = max(0, self._limit - self._count)
        self._count += len(added)
        self._threads.setdefault((pid, name, thread, 0), []).extend(added[:room])

    def take(self) -> list[Span]:
        """Remove and return all spans that were added here."""
        taken = [span for spans in self._own.values() for span in spans]
        for spans in self._own.values():
            spans.clear()
        self._count = 0
        return taken

    def cut(self, at: float) -> None:
        """Remove spans that begin at ``at`` or later."""
        for spans in list(self._threads.values()):  # another thread may add its own
            spans[:] = [span for span in spans if span.start < at]

    def named(self, name: str) -> list[Span]:
        """Return the spans of that name added here, ordered by their end."""
        return [span for spans in self._own.values() for span in spans if span.name == name]

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        write_atomically(path, json.dumps(self.as_dict(), separators=(",", ":")), durable=False)

    def as_dict(self) -> dict[str, Any]:
        """Return all spans in Chrome's trace event format, in microseconds from the first one."""
        threads = list(self._threads.items())  # another thread may add its own
        zero = min((span.start for _, spans in threads for span in spans), default=0.0)
        events: list[dict[str, Any]] = []
        for tid, ((pid, process, thread, _), spans) in enumerate(threads, start=1):
            place = {"pid": pid, "tid": tid}
            for name, args in (
                ("process_name", {"name": process}),
                ("thread_name", {"name": thread}),
                ("thread_sort_index", {"sort_index": tid}),
            ):
                events.append({"name": name, "ph": "M", **place, "args": args})
            # In whole nanoseconds, so that rounding takes no span out of the one around it.
            rounded = [
                (round((s.start - zero) * 1e9), round((s.end - zero) * 1e9), s.name) for s in spans
            ]
            for start, end, name in sorted(rounded, key=lambda span: (span[0], -span[1])):
                category, _, short = name.rpartition("/")
                time = {"ts": start / 1000, "dur": (end - start) / 1000}
                events.append({"name": short, "cat": category or "phase", "ph": "X"} | time | place)
        left_out = max(0, self._count - self._limit)
        return {
            "traceEvents": events,
            "displayTimeUnit": "ms",
            "otherData": {"spans left out": left_out} if left_out else {},
        }
