"""The three dispatchers that call the hooks of a transform, log or action point.

This is the hot path. A dispatcher holds a tuple of bound callables, rebuilt when hooks are added or
removed, and a second tuple with a clock around each callable for the timed sample of the passes.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from tensordict import TensorDict, is_tensor_collection

from ..errors import HookReturnError, add_note
from .cadence import Every, Progress
from .hook_points import HookPoint, Kind
from .metrics import Metrics
from .timing import HOOK_PREFIX, PhasedCall, TimedCall, Timing

# Of a per-step point's passes the first so many are timed, then one in so many. A prime, so that
# what a hook does every 8th or 64th step is met as often as it happens.
_SAMPLE = 61


class Dispatcher:
    """Calls the hooks of one point in order."""

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
        """Call the hooks with the arguments of the point."""
        raise NotImplementedError

    def add(self, entry: Entry) -> None:
        """Insert ``entry`` after those of higher or equal priority."""
        self.entries = sorted([*self.entries, entry], key=lambda e: -e.priority)

    def remove(self, entry: Entry) -> None:
        """Remove ``entry``."""
        self.entries = [e for e in self.entries if e is not entry]

    def compile(self) -> None:
        """Build the tuples of callables from the entries."""
        self.add_up()
        called = self.entries[self.first :]
        self.calls = tuple(entry.call(self._progress) for entry in called)
        self._timed = tuple(map(self._with_clock, self.calls, called))
        self._timed_until = max(self._timed_until, self._passes + self._sample)

    def time_every_pass(self, on: bool) -> None:
        """Time every pass of a per-step point, as for a trace, or only a sample."""
        self._timed_until = math.inf if on else self._passes

    def add_up(self) -> None:
        """Add the time of a per-step point's hooks since the last call."""
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
        """Add a note with the hook, the point and the counters."""
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
    """Passes a TensorDict through the hooks, each receiving the result of the one before."""

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
    """Passes a TensorDict to the hooks and logs the metrics they return."""

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
    """Calls the hooks without arguments."""

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

# -- `Entry`: one op at one hook point, whose it is, and what the loop calls for it.


class Adapter:
    """Wraps an op that was written for another point or trainer."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func


class Entry:
    """One op at one hook point."""

    def __init__(
        self,
        point: HookPoint,
        op: Callable[..., Any],
        kwargs: dict[str, Any],
        priority: float,
        every: Every | None,
        serial: int,
    ) -> None:
        self.point = point
        self.op = functools.partial(op, **kwargs) if kwargs else op
        self.priority = priority
        self.every = every
        inner = _innermost(op)
        self.owner = owner_of(op)
        method = getattr(inner, "__name__", "")
        self.method = method if self.owner is not inner and method != "__call__" else ""
        self.own_name = getattr(inner, "__name__", "") if self.owner is inner else ""
        self.own_name = self.own_name or type(self.owner).__name__
        self.name = self.own_name
        self.serial = serial
        self.computes_loss = point == "optimizer" and any(
            getattr(thing, "computes_loss", False) is True for thing in (op, self.owner)
        )

    @property
    def phase(self) -> str:
        """The phase that includes the op's time."""
        return "optimize" if self.point.per_step else phase_of(self.owner)

    def call(self, progress: Progress) -> Callable[..., Any]:
        """Return the callable for the loop: the op, gated by its cadence if it has one."""
        if self.computes_loss:
            return _OwnLoss(self.op)
        if self.every is not None:
            return _Gate(self.op, self.every, progress)
        # A bound method is called faster than the object it belongs to.
        bound = getattr(self.op, "__call__", None)  # noqa: B004
        return bound if inspect.ismethod(bound) else self.op


def owner_of(op: Any) -> Any:
    """Return the object of a bound method; partials and adapters are unwrapped."""
    inner = _innermost(op)
    return getattr(inner, "__self__", inner)


def _innermost(op: Any) -> Any:
    """Unwrap partials and adapters."""
    while isinstance(op, (functools.partial, Adapter)):
        op = op.func
    return op


def phase_of(owner: Any) -> str:
    """Return the hook's attribute ``phase``, else ``"hooks"``."""
    phase = getattr(owner, "phase", None)
    return phase if isinstance(phase, str) else "hooks"


class _OwnLoss:
    """Calls an op that computes the losses, and checks that it returns them."""

    __slots__ = ("op",)

    def __init__(self, op: Any) -> None:
        self.op = op

    def __call__(self, *args: Any) -> Any:
        losses = self.op(*args)
        if losses is None:
            raise HookReturnError(
                "a hook that computes the losses itself returned None; return the losses, which "
                "are logged."
            )
        return losses


class _Gate:
    """Calls an op only when its cadence is due."""

    __slots__ = ("every", "op", "progress")

    def __init__(self, op: Any, every: Every, progress: Progress) -> None:
        self.op = op
        self.every = every
        self.progress = progress

    def __call__(self, *args: Any) -> Any:
        if self.every.due(self.progress):
            return self.op(*args)
        return None
