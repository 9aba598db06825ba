"""Timing of the phases and hooks of a run, always on; traces; the table of times."""

from __future__ import annotations

import json
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..base.fs import write_atomically
from ..base.words import printable

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
        trace: Records spans; ``None`` if no trace is recorded.
        listeners: Their ``begin(phase)`` and ``end(phase)`` are called for every serial phase.
        reports: Whether windows are reported; true on one of several processes.
        lap_start: When the lap began.
    """

    def __init__(self) -> None:
        self.totals: defaultdict[str, float] = defaultdict(float)
        self.trace: Trace | None = None
        self.listeners: tuple[Any, ...] = ()
        self.reports = True
        self._within: list[float] = []  # seconds to subtract from each phase under way
        self.lap_start = 0.0
        self._window_start: dict[str, float] = {}
        self._window_frames = 0
        self._window_batches = 0

    # -- measuring -------------------------------------------------------------------------------

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the block as phase ``name``, in the training thread; others add to ``totals``."""
        start = self.begin(name)
        try:
            yield
        finally:
            self.end(name, start)

    def traced(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``call``, or while a trace is recorded a wrapper that records each call."""
        if (trace := self.trace) is None:
            return call

        def recorded(*args: Any) -> Any:
            start = perf_counter()
            try:
                return call(*args)
            finally:
                trace.add(name, start, perf_counter())

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

    def lap(self, span: str = "step") -> float:
        """End a lap and begin the next; add its seconds to ``step`` and return them."""
        start, self.lap_start = self.lap_start, perf_counter()
        seconds = self.lap_start - start
        self.totals["step"] += seconds
        if self.trace is not None:
            self.trace.add(span, start, self.lap_start)
        return seconds

    def close_window(self, frames: int, batches: int) -> dict[str, float]:
        """Report the current window and begin the next one.

        A call at the start of a resumed run begins its first window.

        Args:
            frames: Frames collected so far.
            batches: Batches collected so far.

        Returns:
            ``time/<name>`` in seconds per batch and ``time/fps`` in frames per second; empty if the
            window holds no batch.
        """
        start, new_batches = self._window_start, batches - self._window_batches
        new_frames = frames - self._window_frames
        totals = self._window_start = dict(self.totals)  # another thread may add its own
        self._window_frames, self._window_batches = frames, batches
        if new_batches <= 0 or not self.reports:
            return {}
        seconds = {name: total - start.get(name, 0.0) for name, total in totals.items()}
        report = {f"time/{name}": spent / new_batches for name, spent in seconds.items()}
        if seconds.get("step", 0.0) > 0.0:
            report["time/fps"] = new_frames / seconds["step"]
        return report

    def __getstate__(self) -> dict[str, Any]:
        # Listeners, the trace and the phases under way belong to this process.
        return self.__dict__ | {"trace": None, "listeners": (), "_within": []}


# -- `Trace`: spans of time, in the format of chrome://tracing and Perfetto.


class Span(NamedTuple):
    """A named time span."""

    name: str
    start: float
    end: float


class Trace:
    """Collects spans by thread and writes them as one file."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, str], list[Span]] = {}  # by process and thread

    def add(self, name: str, start: float, end: float) -> None:
        """Add a span of the calling thread; see `Span`."""
        row = os.getpid(), threading.current_thread().name
        self._rows.setdefault(row, []).append(Span(name, start, end))

    def extend(
        self, spans: Iterable[tuple[str, float, float]], *, thread: str, pid: int | None = None
    ) -> None:
        """Add spans of another thread or process of this machine."""
        row = self._rows.setdefault((pid or os.getpid(), thread), [])
        row.extend(Span(*span) for span in spans)

    def take(self) -> list[Span]:
        """Remove and return all spans."""
        rows, self._rows = self._rows, {}
        return [span for row in rows.values() for span in row]

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        write_atomically(path, json.dumps(self.as_dict(), separators=(",", ":")), durable=False)

    def as_dict(self) -> dict[str, Any]:
        """Return all spans in Chrome's trace event format, in microseconds from the first one."""
        rows = list(self._rows.items())  # another thread may add its own
        zero = min((span.start for _, spans in rows for span in spans), default=0.0)
        events: list[dict[str, Any]] = []
        for tid, ((pid, thread), spans) in enumerate(rows, start=1):
            place = {"pid": pid, "tid": tid}
            process = "hooktrainer" if pid == os.getpid() else thread
            for kind, value in {"process_name": process, "thread_name": thread}.items():
                events.append({"name": kind, "ph": "M", **place, "args": {"name": value}})
            for name, start, end in sorted(spans, key=lambda span: (span.start, -span.end)):
                # In whole nanoseconds, so that rounding takes no span out of the one around it.
                first, last = round((start - zero) * 1e9), round((end - zero) * 1e9)
                category, _, short = name.rpartition("/")
                time = {"ts": first / 1000, "dur": (last - first) / 1000}
                events.append({"name": short, "cat": category or "phase", "ph": "X"} | time | place)
        return {"traceEvents": events, "displayTimeUnit": "ms"}


# -- The time of a run as a table of phases, hooks, and threads and processes outside the loop.

_GROUPS: Final = {"hook": "of it, in hooks", "worker": "outside the loop"}
"""Title of each group of times that are no phases of the loop."""
_LEAST: Final = 0.001  # share of all of it below which a row is left out


class TimeRow(NamedTuple):
    """One row of the table."""

    label: str
    seconds: float
    depth: int


def time_rows(times: Mapping[str, float], group: str = "") -> list[TimeRow]:
    """Return the serial phases or the times of a group, longest first, each before its parts.

    Args:
        times: Seconds by name.
        group: A group such as ``"worker"`` or ``"hook"``; by default the serial phases.
    """
    named = {
        name.removeprefix(f"{group}/"): seconds
        for name, seconds in times.items()
        if name not in ("step", "fps")
        and (name.startswith(f"{group}/") if group else name.partition("/")[0] not in _GROUPS)
    }
    depth, rows = int(bool(group)), list[TimeRow]()
    ordered = sorted(named, key=lambda name: -named[name])
    for top in [name for name in ordered if name.rpartition("/")[0] not in named]:
        rows.append(TimeRow(top, named[top], depth))
        parts = [name for name in ordered if name.startswith(f"{top}/")]
        rows += [TimeRow(n.removeprefix(f"{top}/"), named[n], depth + 1) for n in parts]
    return rows


def time_table(
    times: Mapping[str, float],
    *,
    title: str | None = "Where the time went",
    unit: str = "seconds",
    scale: float = 1.0,
) -> Table:
    """Return a `rich` table of times and shares; ``scale`` units are a second."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("phase")
    for heading in (unit, "share"):
        table.add_column(heading, justify="right")
    phases = time_rows(times)
    serial = sum(row.seconds for row in phases if not row.depth)
    whole = max(times.get("step", 0.0), serial)  # a batch that failed is in no step
    phases.append(TimeRow("in between", whole - serial, 0))
    groups = [("", [*phases, TimeRow("all of it", whole, 0)])]
    groups += [(heading, time_rows(times, group)) for group, heading in _GROUPS.items()]
    for heading, rows in groups:
        shown = [row for row in rows if row.seconds > _LEAST * whole]
        if shown and heading:
            table.add_section()
            table.add_row(heading)
        for label, seconds, depth in shown:
            label = escape(f"{'  ' * depth}{printable(label)}")
            style = "dim" if depth else None
            table.add_row(label, f"{scale * seconds:,.2f}", f"{seconds / whole:.1%}", style=style)
    return table
