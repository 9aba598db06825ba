"""Locks on files: one writer per run, and no deletion of what someone reads."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from weakref import ref

from ..base.fs import open_to_lock
from ..base.untrusted import MalformedError, one_line, open_file, parse_json, read_file
from ..errors import CheckpointError

_log = logging.getLogger(__name__)
FILE = ".lock"


class RunLock:
    """Held by the one process that writes a run's checkpoints.

    The operating system releases the lock when the process ends, however it ends, so a lock that
    is held always means a live process. It is also released when this object is deleted. Children
    made by ``fork`` do not keep it.

    Args:
        directory: The directory to lock; it must exist.
        seconds: How long to wait for it; by default for an instant, as `is_locked` takes it.

    Raises:
        CheckpointError: If another process, or another object in this one, holds the lock; names
            the process.
    """

    _fd: int | None = None

    def __init__(self, directory: Path, seconds: float = 0.05) -> None:
        self._fd = open_to_lock(directory / FILE)
        try:
            for _ in range(round(seconds / 0.01)):
                with suppress(BlockingIOError):
                    fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.01)
            else:
                self._close()
                found = _recorded(directory)
                holder = f"process {found.get('pid', '?')} on {found.get('host', '?')}"
                raise CheckpointError(
                    f"{directory} is in use by another run ({one_line(holder, 80)}). Wait for it "
                    "to end, or choose another run directory."
                )
        except OSError as error:
            _log.warning(
                "%s cannot be locked (%s): see that one run writes to it.", directory, error
            )
        me = {"pid": os.getpid(), "host": socket.gethostname()}
        with suppress(OSError):  # for the message above alone: a full disk can still be pruned
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(me).encode(), 0)
        held = ref(self)  # what is registered is never forgotten

        def close_copy() -> None:
            if (lock := held()) is not None:
                lock._close()

        os.register_at_fork(after_in_child=close_copy)

    def release(self) -> None:
        """Release the lock; safe to call again."""
        if self._fd is not None:
            with suppress(OSError):
                # Closing is not enough while a child just forked still has a copy.
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._close()

    __del__ = release

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)


def _recorded(directory: Path) -> dict[str, Any]:
    """The process and the host that a lock file names; empty while it is written."""
    with suppress(OSError, ValueError):
        content = parse_json(read_file(directory / FILE, directory, 4096))
        return content if isinstance(content, dict) else {}
    return {}


@contextmanager
def locked(path: Path, *, alone: bool = False) -> Iterator[bool | None]:
    """Lock a file while the block runs.

    Args:
        path: A file that is there.
        alone: Whether the lock is exclusive.

    Yields:
        Whether it is locked: false if another process has it locked; ``None`` on a file system
        without locks.
    """
    with open_file(path) as file:
        held: bool | None = True
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError as error:
            held = False if isinstance(error, BlockingIOError) else None
        yield held


# -- Whether the process that trains a run is still there.

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
    try:
        os.kill(pid or os.getpid(), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is another user's, or no number of a process
        pass
    with suppress(TypeError, ValueError, KeyError):
        updated = datetime.fromisoformat(state["updated"]).timestamp()
        if abs(time.time() - updated) < _FRESH_SECONDS:
            return True
    # The number may be another process's by now; a lock is released when its holder ends.
    locked = is_locked(checkpoints)
    return locked if locked is not None or pid is None else True


def is_locked(directory: Path) -> bool | None:
    """Whether a process holds the lock of a directory; ``None`` if that cannot be known."""
    if _recorded(directory).get("host", socket.gethostname()) == socket.gethostname():
        with suppress(OSError, MalformedError), locked(directory / FILE) as free:
            return None if free is None else not free
    return None


def is_locked_here(directory: Path) -> bool:
    """Whether it is this process that holds the lock of a directory."""
    me = {"pid": os.getpid(), "host": socket.gethostname()}
    return _recorded(directory) == me and is_locked(directory) is True
