"""`Dispatcher`, which calls the hooks of a point.

This is the hot path. A dispatcher holds a tuple of callables, rebuilt when hooks are added or
removed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from tensordict import TensorDict, is_tensor_collection

from ..errors import HookReturnError, add_note
from .cadence import Every, Progress
from .hook_points import HookPoint
from .metrics import Metrics
from .timing import HOOK_PREFIX, Timing


class Dispatcher:
    """Calls the hooks of one point in order."""

    def __init__(
        self, point: HookPoint, progress: Progress, metrics: Metrics, timing: Timing
    ) -> None:
        self.point = point
        self.entries: list[Entry] = []
        self.first = 0
        self.calls: tuple[tuple[Callable[..., Any], str, str], ...] = ()  # with timer and phase
        self._progress = progress
        self._log = metrics.log
        self._timing = timing

    def __call__(self, *args: Any) -> Any:
        """Call the hooks with the arguments of the point.

        Returns:
            The first argument; at a transform point, what the last hook made of it.
        """
        timing, name, kind, is_step = self._timing, "", self.point.kind, self.point.per_step
        try:
            for call, name, phase in self.calls:
                start = perf_counter() if is_step else timing.begin(phase)
                try:
                    out = call(*args)
                finally:
                    if is_step:
                        timing.end_hook(name, start)
                    else:
                        timing.end(phase, start, name)
                if out is None or kind == "action":
                    continue
                if kind == "log" and isinstance(out, dict):
                    self._log(out)
                elif kind == "transform" and (
                    out.__class__ is TensorDict or is_tensor_collection(out)
                ):
                    args = (out, *args[1:])
                else:
                    raise HookReturnError(
                        f"hook {_bare(name)!r} at hook point {self.point!s} returned {out!r:.80} "
                        f"of type {type(out).__name__}; this {kind} point takes "
                        f"{self.point.returns}."
                    )
        except Exception as error:
            add_note(
                error,
                f"in hook {_bare(name)!r} at hook point {self.point!s} "
                f"(frames {self._progress.frames}, optimizer step {self._progress.optim_steps})",
            )
            raise
        return args[0] if args else None

    def add(self, entry: Entry) -> None:
        """Insert ``entry`` after those of higher or equal priority."""
        self.entries = sorted([*self.entries, entry], key=lambda e: -e.priority)

    def remove(self, entry: Entry) -> None:
        """Remove ``entry``."""
        self.entries = [e for e in self.entries if e is not entry]

    def compile(self) -> None:
        """Build the tuple of callables from the entries."""
        entries = self.entries[self.first :]
        self.calls = tuple((e.call(self._progress), HOOK_PREFIX + e.name, e.phase) for e in entries)
        self._timing.hooks.update({name: phase for _, name, phase in self.calls})


def _bare(name: str) -> str:
    return name.removeprefix(HOOK_PREFIX)


# -- `Entry`: one op at one hook point, whose it is, and what the loop calls for it.


@dataclass(eq=False)
class Adapter:
    """Wraps an op that was written for another point or trainer."""

    func: Callable[..., Any]


@dataclass(eq=False)
class Entry:
    """One op at one hook point."""

    point: HookPoint
    op: Callable[..., Any]
    kwargs: dict[str, Any]
    priority: float
    every: Every | None
    serial: int

    def __post_init__(self) -> None:
        inner = _innermost(self.op)
        self.owner = owner_of(self.op)
        method = getattr(inner, "__name__", "")
        self.method = method if self.owner is not inner and method != "__call__" else ""
        self.own_name = method if self.owner is inner and method else type(self.owner).__name__
        self.name = self.own_name
        self.computes_loss = self.point == "optimizer" and any(
            getattr(thing, "computes_loss", False) is True for thing in (self.op, self.owner)
        )
        if self.kwargs:
            self.op = functools.partial(self.op, **self.kwargs)

    @property
    def phase(self) -> str:
        """The phase that includes the op's time."""
        return "optimize" if self.point.per_step else phase_of(self.owner)

    def call(self, progress: Progress) -> Callable[..., Any]:
        """Return the callable for the loop: the op, gated by its cadence if it has one."""
        if self.computes_loss:
            return functools.partial(_own_losses, self.op)
        if self.every is not None:
            return functools.partial(_call_if_due, self.op, self.every, progress)
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


def _own_losses(op: Callable[..., Any], *args: Any) -> Any:
    """Call an op that computes the losses, and check that it returns them."""
    losses = op(*args)
    if losses is None:
        raise HookReturnError(
            "a hook that computes the losses itself returned None: return the losses."
        )
    return losses


def _call_if_due(op: Callable[..., Any], every: Every, progress: Progress, *args: Any) -> Any:
    return op(*args) if every.due(progress) else None
