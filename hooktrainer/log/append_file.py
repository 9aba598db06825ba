"""A file that is appended to and can be truncated to an earlier position."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path
from typing import Any

from ..base.text_file import write_atomically

_CHUNK = 1 << 20


class AppendFile:
    """Appends bytes to `path`; a write is complete or undone.

    `size` and `crc32` of the written bytes identify a position, to which the file can be truncated
    while its beginning is unchanged.

    Args:
        path: The file. Its directory is created at the first write.
        exclusive: Refuse an existing file.
    """

    def __init__(self, path: Path, *, exclusive: bool = False) -> None:
        self.path = path
        self.size = 0
        self.crc32 = 0
        self._exclusive = exclusive
        self._fd: int | None = None
        self._synced = True
        self._entry_synced = False

    def write(self, data: bytes) -> None:
        """Append `data`."""
        fd = self._open()
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, self.size)
            error.filename = error.filename or str(self.path)
            raise
        self.size += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)
        self._synced = False

    def rewind(self, size: int, crc32: int) -> bool:
        """Truncate the file to a position; return `False`, with no change, if impossible."""
        self.close()
        if self.path.is_symlink() or not starts_with(self.path, size, crc32):
            return False
        if self.path.exists():
            os.truncate(self.path, size)
        self.size, self.crc32 = size, crc32
        self._exclusive = self._synced = False
        return True

    def replace(self, content: bytes) -> None:
        """Replace the content atomically."""
        self.close()
        write_atomically(self.path, content, durable=False)
        self.size, self.crc32 = len(content), zlib.crc32(content)
        self._exclusive = self._synced = self._entry_synced = False

    def sync(self) -> None:
        """Flush the file and its directory entry to the disk."""
        if self._synced:
            return
        os.fsync(self._open())
        if not self._entry_synced and hasattr(os, "O_DIRECTORY"):
            directory = os.open(self.path.parent, os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            self._entry_synced = True
        self._synced = True

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def _open(self) -> int:
        if self._fd is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            if self._exclusive:
                flags |= os.O_EXCL
            self._fd = os.open(self.path, flags, 0o644)
            self._exclusive = False
        return self._fd

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fd": None}

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.close()


def starts_with(path: Path, size: int, crc32: int) -> bool:
    """Return whether the first `size` bytes of the file have this CRC-32."""
    if size == 0:
        return True
    found, left = 0, size
    try:
        with path.open("rb") as file:
            while left and (chunk := file.read(min(left, _CHUNK))):
                found = zlib.crc32(chunk, found)
                left -= len(chunk)
    except FileNotFoundError:
        return False
    return left == 0 and found == crc32
