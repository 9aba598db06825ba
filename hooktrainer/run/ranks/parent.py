"""Ending with the process that started this one, so that nothing is left when that is killed."""

from __future__ import annotations

import os
import signal
import threading
import time

_PERIOD = 0.5
_GRACE = 6.0


def die_with_parent(grace: float = _GRACE) -> None:
    """End this process if its parent ends: gracefully at first, for good after ``grace`` seconds.

    A thread looks twice a second. A process that is stuck ends, too.

    Args:
        grace: Seconds that SIGTERM is given to take effect.
    """
    parent = os.getppid()
    thread = threading.Thread(
        target=_watch, args=(parent, grace), name="die_with_parent", daemon=True
    )
    thread.start()


def _watch(parent: int, grace: float) -> None:
    while os.getppid() == parent:
        time.sleep(_PERIOD)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os._exit(1)
