"""Closing several objects so that all are closed and no failure hides another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import add_note


def call_all(
    what: str, calls: Iterable[Callable[[], Any]], *, active: BaseException | None = None
) -> None:
    """Make every call, even if others fail.

    Raises:
        Exception: The first failure, with the others as notes, unless ``active`` is given.
    """
    first: BaseException | None = None
    for call in calls:
        try:
            call()
        except Exception as error:
            main = active or first
            if main is None:
                first = error
            else:
                add_note(main, f"{what} failed as well, in {_name(call)}: {error!r}")
    if first is not None:
        raise first


def close_methods(*things: Any) -> list[Callable[[], Any]]:
    """Return the ``shutdown``, or else ``close``, method of each distinct object that has one."""
    unique = {id(thing): thing for thing in things}.values()
    methods = (getattr(t, "shutdown", None) or getattr(t, "close", None) for t in unique)
    return [method for method in methods if callable(method)]


def _name(call: Any) -> str:
    call = getattr(call, "func", call)
    return str(getattr(call, "__qualname__", call))
