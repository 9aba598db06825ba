"""Whether the process that trains a run is still there."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from ..base.untrusted import MalformedError, open_file, parse_json, read_file

_FRESH_SECONDS = 10.0
"""A run writes `run.json` every second, or few seconds; one that did so lately is alive."""


def is_alive(checkpoints: Path, state: Mapping[str, Any]) -> bool | None:
    """Whether the process that trains a run is still there.

    Args:
        checkpoints: Where the run keeps its checkpoints, and its lock.
        state: The content of its `run.json`, whose status is ``running``.

    Returns:
        ``None`` if that cannot be known, as for a run on another machine.
    """
    if state.get("host", socket.gethostname()) != socket.gethostname():
        return None
    pid = state.get("pid")
    if pid is not None and not _exists(int(pid)):
        return False
    updated = _seconds(state.get("updated"))
    if updated is not None and abs(time.time() - updated) < _FRESH_SECONDS:
        return True
    # The number may be another process's by now; a lock is let go of when its holder ends.
    locked = is_locked(checkpoints)
    return locked if locked is not None or pid is None else True


def is_locked(checkpoints: Path) -> bool | None:
    """Whether a process holds the lock of a run's checkpoints; ``None`` if there is no lock."""
    try:
        file = open_file(checkpoints / ".lock", checkpoints)
    except (OSError, MalformedError):
        return None
    fd = file.fileno()
    try:
        host = parse_json(os.read(fd, 4096) or b"{}").get("host", socket.gethostname())
        if host != socket.gethostname():
            return None
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except (OSError, ValueError, AttributeError):  # no locks here, or not a lock file of ours
        return None
    finally:
        file.close()


def is_locked_here(checkpoints: Path) -> bool:
    """Whether it is this process that holds the lock of a run's checkpoints."""
    try:
        holder = parse_json(read_file(checkpoints / ".lock", checkpoints))
        here = (holder["pid"], holder["host"]) == (os.getpid(), socket.gethostname())
    except (OSError, ValueError, KeyError, TypeError, MalformedError):
        return False
    return here and is_locked(checkpoints) is True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is another user's, or no number of a process
        return True
    return True


def _seconds(stamp: Any) -> float | None:
    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(stamp).timestamp()
    return None
