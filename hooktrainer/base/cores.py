"""The CPU cores that this process, and those it starts, may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final


def available_cores() -> set[int]:
    """Numbers of the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


_AT_FIRST: Final = frozenset(available_cores())  # before anything was pinned


def pin(cores: Any) -> None:
    """Let this process run on these CPU cores only, where the system can do that."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(cores))


@contextmanager
def unpinned() -> Iterator[None]:
    """What is started in the block may use all cores that this process had when it began.

    Processes inherit the cores of the one that starts them: those that a pinned learner starts
    would crowd together on its own.
    """
    now = available_cores()
    pin(_AT_FIRST)
    try:
        yield
    finally:
        pin(now)
