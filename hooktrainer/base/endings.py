"""How a run can end: its status in ``run.json`` and loggers, and the signals that end a program."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDED: Final = ("finished", "solved", "pruned", "stopped")
"""In order: at ``total_frames``, at its goal, by a sweep, by another request to stop."""
ENDINGS: Final = (*ENDED, "interrupted", "failed")
"""All of them."""

# -- The signals that end a program, and what SIGINT does while modules are imported.

ENDING_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""SIGINT, SIGTERM and, where there is one, SIGHUP."""
GRACE: Final = 30.0
"""Seconds from a signal to the end of the process, unless said otherwise."""


def has_default(number: int) -> bool:
    """Whether a signal is handled as Python does by itself, or by `interruptible`."""
    return signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler, _interrupt)


@contextmanager
def interruptible(*, is_all: bool = False) -> Iterator[None]:
    """In the block, SIGINT raises `KeyboardInterrupt`; while something is imported, it is the end.

    An exception that a handler raises within an import gets lost or comes out as another one: an
    extension took it for its own. So the process dies there as one without a handler would, without
    a word. Outside the main thread, or where SIGINT is ignored or handled, this changes nothing.

    Args:
        is_all: Whether the block is all that the process does: what Python tidies up after it is
            then cut off without a word, too.
    """
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if is_ours:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.SIG_DFL if is_all else signal.default_int_handler)


def is_importing(frame: FrameType | None) -> bool:
    """Whether a frame is at work for an import statement."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _interrupt(number: int, frame: FrameType | None) -> None:
    if is_importing(frame):
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    raise KeyboardInterrupt
