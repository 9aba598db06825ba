"""Closing several things so that all are closed and no failure hides another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .errors import add_note


def close_all(*closers: Callable[[], Any] | None) -> None:
    """Call every closer, even if others fail.

    Args:
        *closers: Called in order; ``None`` and what cannot be called are passed over.

    Raises:
        Exception: The first failure, with the others as notes; unless this is called while another
            exception is on its way to the caller, which then gets all of them as notes.
    """
    failures: list[Exception] = []
    for close in filter(callable, closers):
        try:
            close()
        except Exception as error:
            failures.append(error)
    under_way = sys.exc_info()[1]
    main = under_way or (failures.pop(0) if failures else None)
    for failure in failures:
        if main is not None:
            add_note(main, f"closing failed as well: {failure!r}")
    if main is not None and main is not under_way:
        raise main
