"""`Entry`: one op at one hook point, whose it is, and what the loop calls for it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..errors import HookReturnError
from .cadence import Every
from .hook_points import HookPoint
from .progress import Progress


class Adapter:
    """What is called at a point in place of an op that was written for another one.

    Attributes:
        func: The op that was registered, whose name, state and time it has.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func


class Entry:
    """One op at one hook point.

    Attributes:
        point: Where.
        op: What is called.
        priority: Higher ones run first.
        every: The cadence that gates the op, if any.
        owner: The object behind the op: of a bound method its object, of a partial or an adapter
            that of its function.
        method: Name of the method, if the op is a bound method other than ``__call__``.
        name: Unique enough to be recognised by people; set by the registry.
        serial: Place in the order of registration.
        computes_loss: Whether the op computes the losses itself; see `TrainerHookBase`.
    """

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
        """The phase that the op's time is a part of."""
        return "optimize" if self.point.per_step else phase_of(self.owner)

    def call(self, progress: Progress) -> Callable[..., Any]:
        """What the loop calls: the op, behind its cadence if it has one."""
        if self.computes_loss:
            return _OwnLoss(self.op)
        if self.every is not None:
            return _Gate(self.op, self.every, progress)
        # A bound method is called faster than the object it belongs to.
        bound = getattr(self.op, "__call__", None)  # noqa: B004
        return bound if inspect.ismethod(bound) else self.op


def owner_of(op: Any) -> Any:
    """The object behind an op: of a bound method its object, of a partial that of its function."""
    inner = _innermost(op)
    return getattr(inner, "__self__", inner)


def _innermost(op: Any) -> Any:
    """What partials and adapters stand around."""
    while isinstance(op, (functools.partial, Adapter)):
        op = op.func
    return op


def phase_of(owner: Any) -> str:
    """The serial phase that a hook declares with its attribute ``phase``; else ``"hooks"``."""
    phase = getattr(owner, "phase", None)
    return phase if isinstance(phase, str) else "hooks"


class _OwnLoss:
    """Calls an op that computes the losses, which are what is logged of the step."""

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
