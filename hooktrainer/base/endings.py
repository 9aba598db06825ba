"""The ends of a run: its status, the signals that end a program, and its parent's end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

ENDED: Final = ("finished", "solved", "pruned", "stopped")
"""In order: at ``total_frames``, at its goal, by a sweep, by another stop request."""
ENDINGS: Final = (*ENDED, "interrupted", "failed")
"""Every final status."""

# -- The signals that end a program.

ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE: Final = 30.0
"""Default seconds from a signal to the end of the process."""
TIMEOUT: Final = 600.0
"""Default seconds after which another process that does not answer ends the run."""


def has_default(number: int) -> bool:
    """Return whether a signal has Python's handler."""
    return signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)


def is_importing(frame: FrameType | None) -> bool:
    """Return whether a frame runs within an import statement."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


# -- The end of a process with its parent's.


def end_with_parent(lives: Callable[[], bool], grace: float = 0.0) -> None:
    """End this process, even if it is stuck, when its parent has ended, even by SIGKILL.

    Args:
        lives: Called again and again, in a thread, until the parent does not live.
        grace: Seconds that the process then has after SIGTERM.
    """

    def follow() -> None:
        while lives():
            pass
        if grace:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
