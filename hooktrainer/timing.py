"""Where the time of a run goes, measured cheaply enough to be always on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from rich.table import Table

HOOK_PREFIX = "hook/"


class Timing:
    """Adds up the seconds spent in named phases, over the run and over the current log window.

    Phases are ``collect``, ``optimize``, ``log``, ``checkpoint``, ``step`` (a whole batch) and any
    name a hook measures itself; ``hook/<name>`` is the time of one hook. Hooks of points passed at
    every optimizer step are timed in a sample of the passes and scaled up, since reading the clock
    costs as much as a small hook. Times of a hook that runs inside another phase are contained in
    that phase's time as well.

    Attributes:
        totals: Seconds by phase over the run, since this object was made.
    """

    def __init__(self) -> None:
        self.totals: defaultdict[str, float] = defaultdict(float)
        self._window_start: dict[str, float] = {}
        self._window_frames = 0
        self._window_batches = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the body of a ``with`` statement as part of phase ``name``."""
        start = perf_counter()
        try:
            yield
        finally:
            self.totals[name] += perf_counter() - start

    def add(self, name: str, seconds: float) -> None:
        """Add ``seconds`` to phase ``name``."""
        self.totals[name] += seconds

    def close_window(self, frames: int, batches: int) -> dict[str, float]:
        """Report the window that ends now and begin the next one.

        Args:
            frames: Frames collected so far in the run.
            batches: Batches collected so far in the run.

        Returns:
            ``time/<phase>`` in seconds per batch and ``time/fps`` in frames per second of
            ``step`` time; empty if the window holds no batch.
        """
        new_batches = batches - self._window_batches
        if new_batches <= 0:
            return {}
        seconds = {
            name: total - self._window_start.get(name, 0.0) for name, total in self.totals.items()
        }
        report = {f"time/{name}": spent / new_batches for name, spent in seconds.items() if spent}
        if seconds.get("step", 0.0) > 0.0:
            report["time/fps"] = (frames - self._window_frames) / seconds["step"]
        self._window_start = dict(self.totals)
        self._window_frames, self._window_batches = frames, batches
        return report

    def start_window(self, frames: int, batches: int) -> None:
        """Begin a window here without reporting one, as at the start of a resumed run."""
        self._window_start = dict(self.totals)
        self._window_frames, self._window_batches = frames, batches

    def table(self) -> Table:
        """The time of the run by phase, as a `rich` table: seconds and share of ``step``."""
        table = Table(title="Where the time went", title_justify="left")
        table.add_column("phase")
        table.add_column("seconds", justify="right")
        table.add_column("share", justify="right")
        whole = self.totals.get("step", 0.0)
        phases = {n: s for n, s in self.totals.items() if n != "step"}
        for name in sorted(phases, key=lambda n: (n.startswith(HOOK_PREFIX), -phases[n])):
            style = "dim" if name.startswith(HOOK_PREFIX) else None
            share = f"{phases[name] / whole:.1%}" if whole else ""
            table.add_row(name, f"{phases[name]:.2f}", share, style=style)
        table.add_section()
        table.add_row("step (all of it)", f"{whole:.2f}", "100.0%" if whole else "")
        return table


class TimedCall:
    """Calls a hook and adds what it took, times the number of calls it stands for.

    Args:
        call: The hook.
        timing: Where the time goes.
        phase: Name of the phase.
        weight: How many calls this one stands for.
    """

    __slots__ = ("call", "phase", "timing", "weight")

    def __init__(self, call: Any, timing: Timing, phase: str, weight: int) -> None:
        self.call = call
        self.timing = timing
        self.phase = phase
        self.weight = weight

    def __call__(self, *args: Any) -> Any:
        """Call the hook."""
        start = perf_counter()
        try:
            return self.call(*args)
        finally:
            self.timing.totals[self.phase] += (perf_counter() - start) * self.weight
