"""`Trace`: what happened when, in the format that chrome://tracing and Perfetto read."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident
from typing import Any, Final, NamedTuple

from ..base.text_file import write_atomically

_LIMIT: Final = 1_000_000  # spans; each takes some hundred bytes of memory and of the file


class Span(NamedTuple):
    """Something that was done from one moment to another.

    Attributes:
        name: What.
        start: Reading of `time.perf_counter` at the beginning; one clock for all processes of a
            machine that runs Linux.
        end: The same at the end.
    """

    name: str
    start: float
    end: float


@dataclass
class _Row:
    """The spans of one thread."""

    pid: int
    process: str
    thread: str
    spans: list[Span] = field(default_factory=list)


class Trace:
    """Collects spans, by thread, and writes them as one file.

    Args:
        limit: Spans kept; those beyond it are counted and left out.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._count = 0
        self._own: dict[int, _Row] = {}
        self._others: dict[tuple[int, str], _Row] = {}

    def add(self, name: str, start: float, end: float) -> None:
        """Add a span of the calling thread; see `Span`."""
        self._count += 1
        if self._count > self._limit:
            return
        row = self._own.get(get_ident())
        if row is None:
            row = self._own[get_ident()] = _Row(
                os.getpid(), "hooktrainer", threading.current_thread().name
            )
        row.spans.append(Span(name, start, end))

    def extend(
        self,
        spans: Iterable[tuple[str, float, float]],
        *,
        thread: str,
        pid: int | None = None,
        process: str = "",
    ) -> None:
        """Add spans that another thread or process of this machine recorded.

        Args:
            spans: As `take` returned them there.
            thread: What its row is called.
            pid: The process; by default this one.
            process: What the process is called; by default what the row is.
        """
        pid = os.getpid() if pid is None else pid
        if pid == os.getpid():
            process = "hooktrainer"
        row = self._others.setdefault((pid, thread), _Row(pid, process or thread, thread))
        added = [Span(*span) for span in spans]
        room = max(0, self._limit - self._count)
        self._count += len(added)
        row.spans += added[:room]

    def take(self) -> list[Span]:
        """Remove all spans that were added here and return them, to be sent elsewhere."""
        taken = [span for row in self._own.values() for span in row.spans]
        self._own.clear()
        self._count = 0
        return taken

    def cut(self, at: float) -> None:
        """Leave out what begins at ``at`` or later."""
        for row in (*self._own.values(), *self._others.values()):
            row.spans = [span for span in row.spans if span.start < at]

    def named(self, name: str) -> list[Span]:
        """The spans of that name that were added here, in the order in which they ended."""
        return [span for row in self._own.values() for span in row.spans if span.name == name]

    def write(self, path: Path) -> None:
        """Write the file, all of it or nothing."""
        write_atomically(path, json.dumps(self.as_dict(), separators=(",", ":")), durable=False)

    def as_dict(self) -> dict[str, Any]:
        """Everything in Chrome's trace event format, times in microseconds from the first span."""
        rows = [*self._own.values(), *self._others.values()]
        zero = min((span.start for row in rows for span in row.spans), default=0.0)
        events: list[dict[str, Any]] = []
        for tid, row in enumerate(rows, start=1):
            place = {"pid": row.pid, "tid": tid}
            events += [
                {"name": "process_name", "ph": "M", **place, "args": {"name": row.process}},
                {"name": "thread_name", "ph": "M", **place, "args": {"name": row.thread}},
                {"name": "thread_sort_index", "ph": "M", **place, "args": {"sort_index": tid}},
            ]
            # In whole nanoseconds, so that rounding takes no span out of the one around it.
            spans = [
                (s.name, _nanoseconds(s.start - zero), _nanoseconds(s.end - zero))
                for s in row.spans
            ]
            spans.sort(key=lambda span: (span[1], -span[2]))
            for name, start, end in spans:
                category, _, short = name.rpartition("/")
                events.append(
                    {
                        "name": short,
                        "cat": category or "phase",
                        "ph": "X",
                        "ts": start / 1000,
                        "dur": (end - start) / 1000,
                        **place,
                    }
                )
        left_out = max(0, self._count - self._limit)
        return {
            "traceEvents": events,
            "displayTimeUnit": "ms",
            "otherData": {"spans left out": left_out} if left_out else {},
        }


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
