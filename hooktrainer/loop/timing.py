"""Where the time of a run goes, measured cheaply enough to be always on."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.table import Table

    from .tracing import Trace

HOOK_PREFIX = "hook/"
_RECENT = 16  # timed calls that speak for those that are not


class PhaseListener(Protocol):
    """Is told when a phase begins and ends, to measure it in a way of its own."""

    def begin(self, phase: str) -> None:
        """A phase begins; the one around it, if any, pauses."""

    def end(self, phase: str) -> None:
        """The phase ends; the one around it, if any, goes on."""

    def read(self) -> Mapping[str, float]:
        """Seconds by name that were found out since the last call."""


class Timing:
    """Adds up the seconds spent in named phases, over the run and over the current log window.

    *Serial* phases follow one another: ``collect``, ``advantages``, ``optimize``, ``sync_weights``,
    ``evaluate``, ``log``, ``checkpoint``, ``hooks`` (every other hook outside ``optimize``) and any
    name without a slash that a hook measures itself. A serial phase within another is taken out of
    that one, so no second is counted twice, and together they make up ``step``: all of a batch.

    A name with a slash says more about what is counted already: ``collect/env`` is a part of
    ``collect``, ``hook/<name>`` is the time of one hook. ``worker/<name>`` is what another thread
    or process did meanwhile, ``device/<phase>`` what an accelerator did for a phase.

    Hooks of points passed at every optimizer step are timed in a sample of the passes, since
    reading the clock costs as much as a small hook; the other passes count as much as recent ones
    that were timed. They are added up when a window closes.

    Attributes:
        totals: Seconds by name over the run, since this object was made.
        hooks: Phase that each ``hook/<name>`` is a part of.
        trace: Where spans are recorded; ``None`` while nobody asks for them.
        listeners: Told of every serial phase.
        reports: Whether windows are reported; of several processes that share a run, one does.
    """

    def __init__(self) -> None:
        self.totals: defaultdict[str, float] = defaultdict(float)
        self.hooks: dict[str, str] = {}
        self.trace: Trace | None = None
        self.listeners: tuple[PhaseListener, ...] = ()
        self.reports = True
        self._within: list[float] = []  # for each phase under way, what is to be taken out of it
        self._lap_start = 0.0
        self._window_start: dict[str, float] = {}
        self._window_frames = 0
        self._window_batches = 0

    # -- measuring -------------------------------------------------------------------------------

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Measure the body of a ``with`` statement as part of phase ``name``.

        Only in the thread that trains; elsewhere use `add` and `span`.
        """
        return _Phase(self, name)

    def add(self, name: str, seconds: float) -> None:
        """Add ``seconds``, measured by the caller, to ``name``; nothing is taken out elsewhere."""
        self.totals[name] += seconds

    def span(self, name: str, start: float, end: float) -> None:
        """Record a span if a trace is being recorded; adds to no phase.

        Args:
            name: What is done in it; ``<phase>/<name>`` if it is a part of a phase.
            start: Reading of `time.perf_counter` at its beginning.
            end: The same at its end.
        """
        if self.trace is not None:
            self.trace.add(name, start, end)

    def traced(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``call``; while a trace is recorded, one that records each call as a span."""
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
        """Begin a phase; returns what `end` wants to know. `phase` is the convenient form."""
        if self.listeners and "/" not in phase:
            for listener in self.listeners:
                listener.begin(phase)
        self._within.append(0.0)
        return perf_counter()

    def end(self, phase: str, start: float, hook: str = "") -> None:
        """End the phase begun last.

        Args:
            phase: Its name.
            start: What `begin` returned.
            hook: Name of the hook that was called, if it was one: ``hook/<name>``.
        """
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

    # -- laps and windows ------------------------------------------------------------------------

    def start_lap(self) -> None:
        """Begin the first lap."""
        self._lap_start = perf_counter()

    def lap(self, span: str = "step") -> float:
        """End a lap and begin the next one; add its seconds to ``step`` and return them.

        Args:
            span: What a trace calls it.
        """
        start, self._lap_start = self._lap_start, perf_counter()
        seconds = self._lap_start - start
        self.totals["step"] += seconds
        self.span(span, start, self._lap_start)
        return seconds

    def close_window(self, frames: int, batches: int) -> dict[str, float]:
        """Report the window that ends now and begin the next one.

        Args:
            frames: Frames collected so far in the run.
            batches: Batches collected so far in the run.

        Returns:
            ``time/<name>`` in seconds per batch, of everything measured so far in the run, and
            ``time/fps`` in frames per second of ``step`` time; empty if the window holds no batch.
        """
        new_batches = batches - self._window_batches
        if new_batches <= 0 or not self.reports:
            return {}
        self._read_listeners()
        seconds = {
            name: total - self._window_start.get(name, 0.0) for name, total in self.totals.items()
        }
        report = {f"time/{name}": spent / new_batches for name, spent in seconds.items()}
        if seconds.get("step", 0.0) > 0.0:
            report["time/fps"] = (frames - self._window_frames) / seconds["step"]
        self.start_window(frames, batches)
        return report

    def start_window(self, frames: int, batches: int) -> None:
        """Begin a window here without reporting one, as at the start of a resumed run."""
        self._window_start = dict(self.totals)
        self._window_frames, self._window_batches = frames, batches

    def table(self) -> Table:
        """The time of the run as a `rich` table: seconds and share of all of it."""
        from .time_table import time_table

        self._read_listeners()
        return time_table(self.totals, self.hooks)

    def _read_listeners(self) -> None:
        for listener in self.listeners:
            for name, seconds in listener.read().items():
                self.totals[name] += seconds

    def __getstate__(self) -> dict[str, Any]:
        # What listens, what is recorded and what is under way belong to this process.
        return self.__dict__ | {"trace": None, "listeners": (), "_within": []}


class _Phase:
    """A phase for a ``with`` statement: no generator, which costs as much as a small hook."""

    __slots__ = ("name", "start", "timing")

    def __init__(self, timing: Timing, name: str) -> None:
        self.timing = timing
        self.name = name

    def __enter__(self) -> None:
        self.start = self.timing.begin(self.name)

    def __exit__(self, *_: object) -> None:
        self.timing.end(self.name, self.start)


class PhasedCall:
    """Calls a hook outside the inner loop, as part of a serial phase.

    Args:
        call: The hook.
        timing: Where the time goes.
        name: ``hook/<name>``.
        phase: The serial phase.
    """

    __slots__ = ("call", "name", "phase", "timing")

    def __init__(self, call: Any, timing: Timing, name: str, phase: str) -> None:
        self.call = call
        self.timing = timing
        self.name = name
        self.phase = phase

    def __call__(self, *args: Any) -> Any:
        """Call the hook."""
        start = self.timing.begin(self.phase)
        try:
            return self.call(*args)
        finally:
            self.timing.end(self.phase, start, self.name)


class TimedCall:
    """Calls a hook of the inner loop and keeps what it took.

    Args:
        call: The hook.
        timing: Where its spans go.
        name: ``hook/<name>``.

    Attributes:
        seconds: What the calls took that were not added up yet.
        recent: What each of the last calls took.
    """

    __slots__ = ("call", "name", "recent", "seconds", "timing")

    def __init__(self, call: Any, timing: Timing, name: str) -> None:
        self.call = call
        self.timing = timing
        self.name = name
        self.seconds = 0.0
        self.recent: deque[float] = deque(maxlen=_RECENT)

    def __call__(self, *args: Any) -> Any:
        """Call the hook."""
        start = perf_counter()
        try:
            return self.call(*args)
        finally:
            end = perf_counter()
            self.seconds += end - start
            self.recent.append(end - start)
            if self.timing.trace is not None:
                self.timing.span(f"optimize/{self.name.removeprefix(HOOK_PREFIX)}", start, end)

    def add_up(self, untimed: int) -> None:
        """Add what the calls took, and as much as recent ones for each that was not timed."""
        if self.recent:
            mean = sum(self.recent) / len(self.recent)
            self.timing.add(self.name, self.seconds + untimed * mean)
            self.seconds = 0.0
