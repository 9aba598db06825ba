"""The three dispatchers: how the loop calls the hooks of a transform, log or action point.

They are on the hot path. A dispatcher keeps a tuple of bound callables, made anew only when hooks
are added or removed, and a second tuple of the same with a clock around each, used for a sample of
the passes. Error handling costs nothing until there is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tensordict import TensorDict, is_tensor_collection

from ..errors import HookReturnError, add_note
from .entry import Entry
from .hook_points import HookPoint, Kind
from .metrics import Metrics
from .progress import Progress
from .timing import HOOK_PREFIX, PhasedCall, TimedCall, Timing

# Of a per-step point's passes the first so many are timed, then one in so many. A prime, so that
# what a hook does every 8th or 64th step is met as often as it happens.
_SAMPLE = 61


class Dispatcher:
    """Calls the hooks of one point in order.

    Args:
        point: The hook point.
        progress: The run's counters.
        metrics: Where log hooks' results go.
        timing: Where hooks' times go.

    Attributes:
        entries: The ops, in run order.
        first: Place of the first entry that is called here.
        calls: What is called for each entry from there on; empty if the point has no hooks.
    """

    def __init__(
        self, point: HookPoint, progress: Progress, metrics: Metrics, timing: Timing
    ) -> None:
        self.point = point
        self.entries: list[Entry] = []
        self.first = 0
        self.calls: tuple[Callable[..., Any], ...] = ()
        self._timed: tuple[TimedCall | PhasedCall, ...] = ()
        self._passes = 0
        self._sample = _SAMPLE if point.per_step else 1
        self._timed_until: float = self._sample
        self._added_up = 0  # passes whose times were added up, or that were timed
        self._progress = progress
        self._log = metrics.log
        self._timing = timing

    def __call__(self, *args: Any) -> Any:
        """Call the hooks with what the point passes."""
        raise NotImplementedError

    def add(self, entry: Entry) -> None:
        """Put ``entry`` behind those of higher or equal priority."""
        self.entries = sorted([*self.entries, entry], key=lambda e: -e.priority)

    def remove(self, entry: Entry) -> None:
        """Take ``entry`` out."""
        self.entries = [e for e in self.entries if e is not entry]

    def compile(self) -> None:
        """Make the tuples that are called from the entries."""
        self.add_up()
        called = self.entries[self.first :]
        self.calls = tuple(entry.call(self._progress) for entry in called)
        self._timed = tuple(map(self._with_clock, self.calls, called))
        self._timed_until = max(self._timed_until, self._passes + self._sample)

    def time_every_pass(self, on: bool) -> None:
        """Time every pass of a per-step point, as while a trace is recorded, or a sample again."""
        self._timed_until = math.inf if on else self._passes

    def add_up(self) -> None:
        """Add up the time of a per-step point's hooks since the last call."""
        untimed = self._passes - self._added_up
        for timed in self._timed:
            if isinstance(timed, TimedCall):
                timed.add_up(untimed)
        self._added_up = self._passes

    def _with_clock(self, call: Callable[..., Any], entry: Entry) -> TimedCall | PhasedCall:
        name = f"{HOOK_PREFIX}{entry.name}"
        self._timing.hooks[name] = entry.phase
        if self.point.per_step:
            return TimedCall(call, self._timing, name)
        return PhasedCall(call, self._timing, name, entry.phase)

    def _next_calls(self) -> tuple[Callable[..., Any], ...]:
        passes = self._passes
        self._passes = passes + 1
        if passes < self._timed_until or not passes % self._sample:
            self._added_up += 1
            return self._timed
        return self.calls

    def _name_of(self, call: Any) -> str:
        called = self.entries[self.first :]
        for entry, plain, timed in zip(called, self.calls, self._timed, strict=True):
            if call is plain or call is timed:
                return entry.name
        call = getattr(call, "call", call)  # the hook took itself out
        return str(getattr(call, "__qualname__", call))

    def _annotate(self, error: Exception, call: Any) -> None:
        """Say in ``error`` which hook raised it, where and when."""
        add_note(
            error,
            f"in hook {self._name_of(call)!r} at hook point {self.point!s} "
            f"(frames {self._progress.frames}, optimizer step {self._progress.optim_steps})",
        )

    def _wrong_return(self, call: Any, out: Any) -> HookReturnError:
        return HookReturnError(
            f"hook {self._name_of(call)!r} at hook point {self.point!s} returned {out!r:.80} of "
            f"type {type(out).__name__}; this {self.point.kind} point takes {self.point.returns}."
        )


class TransformDispatcher(Dispatcher):
    """Passes a TensorDict through the hooks, each receiving what the one before returned."""

    def __call__(self, value: Any, *args: Any) -> Any:
        """Return the last hook's result; ``None`` from a hook leaves the value unchanged."""
        calls = self._next_calls()
        call = None
        try:
            for call in calls:
                out = call(value, *args)
                if out.__class__ is TensorDict or is_tensor_collection(out):
                    value = out
                elif out is not None:
                    raise self._wrong_return(call, out)
        except Exception as error:
            self._annotate(error, call)
            raise
        return value


class LogDispatcher(Dispatcher):
    """Shows a TensorDict to the hooks and logs the metrics they return."""

    def __call__(self, batch: Any) -> None:
        """Call every hook."""
        calls = self._next_calls()
        call = None
        try:
            for call in calls:
                out = call(batch)
                if out is not None:
                    if not isinstance(out, dict):
                        raise self._wrong_return(call, out)
                    self._log(out)
        except Exception as error:
            self._annotate(error, call)
            raise


class ActionDispatcher(Dispatcher):
    """Calls the hooks for what they do."""

    def __call__(self) -> None:
        """Call every hook."""
        calls = self._next_calls()
        call = None
        try:
            for call in calls:
                call()
        except Exception as error:
            self._annotate(error, call)
            raise


DISPATCHERS: dict[Kind, type[Dispatcher]] = {
    "transform": TransformDispatcher,
    "log": LogDispatcher,
    "action": ActionDispatcher,
}
