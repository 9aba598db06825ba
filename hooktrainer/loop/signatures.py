"""What may be registered where: the point that a name means, and whether an op fits it."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import HookSignatureError, UnknownHookPointError
from .hook_points import HOOK_POINTS, HookPoint


def find_point(dest: str, stages: Mapping[str, HookPoint]) -> HookPoint:
    """The hook point, or the stage of another trainer, that is called ``dest``.

    Raises:
        UnknownHookPointError: If there is none; names the nearest.
    """
    for point in (*HOOK_POINTS, *stages.values()):
        if point == dest:
            return point
    near = difflib.get_close_matches(str(dest), HOOK_POINTS, n=1, cutoff=0.0)
    hint = f"Did you mean {near[0]!s}?" if near else ""
    raise UnknownHookPointError(
        f"{dest!r} is not a hook point. {hint} The ten are: {', '.join(HOOK_POINTS)}."
    )


def check_signature(point: HookPoint, op: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Refuse an op that cannot take what the point passes, or that a call would not run.

    Raises:
        HookSignatureError: Names the op, what it takes, what the point passes, and a point it fits.
    """
    if kind := _runs_later(op):
        name = getattr(op, "__qualname__", type(op).__name__)
        raise HookSignatureError(
            f"hook {name} is {kind}: calling it runs none of its lines. Write a plain function."
        )
    try:
        signature = inspect.signature(op)
    except (TypeError, ValueError):  # some builtins tell nothing; their first call will
        return
    try:
        signature.bind(*point.receives, **kwargs)
    except TypeError as error:
        name = getattr(op, "__qualname__", type(op).__name__)
        extra = f" and {kwargs}" if kwargs else ""
        fits = [p for p in HOOK_POINTS if _binds(signature, p, kwargs)]
        near = difflib.get_close_matches(point, fits, n=1, cutoff=0.0)
        hint = f" The nearest point it fits is {near[0]!s}." if near else ""
        raise HookSignatureError(
            f"hook {name} takes {signature}, but {point} passes "
            f"({', '.join(point.receives)}){extra}: {error}.{hint}"
        ) from None


def _runs_later(op: Any) -> str | None:
    """What an op is whose call only makes something that somebody else would have to run."""
    while isinstance(op, functools.partial):
        op = op.func
    for called in (op, type(op).__call__ if callable(op) else None):
        if inspect.iscoroutinefunction(called):
            return "a coroutine function (async def)"
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            return "a generator function (it has a yield)"
    return None


def _binds(signature: inspect.Signature, point: HookPoint, kwargs: dict[str, Any]) -> bool:
    try:
        signature.bind(*point.receives, **kwargs)
    except TypeError:
        return False
    return True
