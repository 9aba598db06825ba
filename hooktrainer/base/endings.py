"""How a run can end: its status, and the signals that end a program."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDED: Final = ("finished", "solved", "pruned", "stopped")
"""In order: at ``total_frames``, at its goal, by a sweep, by another stop request."""
ENDINGS: Final = (*ENDED, "interrupted", "failed")
"""Every final status."""

# -- The signals that end a program, and what SIGINT does while modules are imported.

ENDING_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""SIGINT, SIGTERM and, if it exists, SIGHUP."""
GRACE: Final = 30.0
"""Default seconds from a signal to the end of the process."""


def has_default(number: int) -> bool:
    """Return whether a signal has Python's handler, or that of `interruptible`."""
    return signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler, _interrupt)


@contextmanager
def interruptible(*, is_all: bool = False) -> Iterator[None]:
    """In the block, SIGINT raises `KeyboardInterrupt`, but during an import ends the process.

    An exception that a handler raises within an import may be lost or converted. Outside the main
    thread, or if SIGINT is ignored or handled, this does nothing.
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
    """Return whether a frame runs within an import statement."""
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
