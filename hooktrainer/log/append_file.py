"""A file that is appended to and can be truncated to an earlier position."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any


class AppendFile:
    """Appends bytes to `path`, never through a link; a write is complete or undone.

    Args:
        path: The file. It and its directory are created at the first write.
        exclusive: Refuse an existing file at the first write.
    """

    def __init__(self, path: Path, *, exclusive: bool = False) -> None:
        self.path = path
        self._flags = os.O_APPEND | os.O_CREAT | (os.O_EXCL if exclusive else 0)
        self._fd: int | None = None
        self._entry_synced = False

    @property
    def size(self) -> int:
        """The length of the file in bytes."""
        return self.path.stat().st_size if self.path.exists() else 0

    def write(self, data: bytes) -> None:
        """Append `data`."""
        if self._fd is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = _open(self.path, self._flags)
            self._flags &= ~os.O_EXCL
            self._entry_synced = False
        view, before = memoryview(data), os.fstat(self._fd).st_size
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, before)
            error.filename = error.filename or str(self.path)
            raise

    def sync(self) -> None:
        """Flush the file, and once its directory entry, to the disk."""
        if self._fd is None:
            return
        os.fsync(self._fd)
        if not self._entry_synced:
            directory = os.open(self.path.parent, os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            self._entry_synced = True

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fd": None}

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            self.close()


def cut(path: Path, size: int) -> None:
    """Truncate a file to a length that it has at least; not through a link."""
    fd = _open(path, 0)
    try:
        os.ftruncate(fd, size)
    finally:
        os.close(fd)


def _open(path: Path, flags: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o644)
