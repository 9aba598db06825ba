"""`DeviceClock`: how long an accelerator worked for each phase, without ever waiting for it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from .timing import Timing


class Event(Protocol):
    """A mark in the work of an accelerator, as `torch.cuda.Event`."""

    def query(self) -> bool:
        """Whether the work before the mark is done."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds between this mark and a later one, both passed."""


class DeviceClock:
    """Marks the beginning and the end of every phase in an accelerator's stream of work.

    What was asked of the accelerator in a phase runs between two marks. They are read once they
    were passed, when a log window closes; those that were not yet belong to the next window. A
    phase within another is taken out of that one. Time that the accelerator waits between two
    marks, since nothing was asked of it, counts as well.

    Args:
        mark: Makes an event, records it in the stream, and returns it.
    """

    def __init__(self, mark: Callable[[], Event]) -> None:
        self._mark = mark
        self._open: list[tuple[str, Event]] = []
        self._stretches: deque[tuple[str, Event, Event]] = deque()

    def begin(self, phase: str) -> None:
        """Mark the beginning of a phase."""
        event = self._mark()
        if self._open:
            outer, begun = self._open[-1]
            self._stretches.append((outer, begun, event))
        self._open.append((phase, event))

    def end(self, phase: str) -> None:
        """Mark the end of the phase begun last."""
        event = self._mark()
        name, begun = self._open.pop()
        self._stretches.append((name, begun, event))
        if self._open:
            self._open[-1] = (self._open[-1][0], event)

    def read(self) -> dict[str, float]:
        """Seconds of ``device/<phase>`` between marks that were passed since the last call."""
        seconds: defaultdict[str, float] = defaultdict(float)
        while self._stretches and self._stretches[0][2].query():
            name, begun, ended = self._stretches.popleft()
            seconds[f"device/{name}"] += begun.elapsed_time(ended) / 1000
        return seconds


def time_device(timing: Timing, loss_module: Any) -> None:
    """Time the CUDA device that a loss module computes on; on the CPU there is nothing to do."""
    parameters = loss_module.parameters() if isinstance(loss_module, torch.nn.Module) else ()
    device = next((parameter.device for parameter in parameters), None)
    if device is None or device.type != "cuda":
        return

    def mark() -> Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(device))
        return event

    timing.listeners = (*timing.listeners, DeviceClock(mark))
