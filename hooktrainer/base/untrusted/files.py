"""Untrusted files by name in a directory."""

from __future__ import annotations

import errno
import os
import resource
import stat
from contextlib import suppress
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import Final

from .text import MalformedError, one_line, shown

MAX_STRUCTURE: Final = 1 << 28
"""Maximum bytes of a file that is parsed as a whole, such as ``state.json``."""
_LONGEST_NAME, _LONGEST_PART = 500, 255


def check_name(name: object) -> str:
    """Return the name of a file below a directory, such as ``tensors/index.json``."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        raise MalformedError(f"{shown(name)} is no name of a file")
    path = PurePosixPath(name)
    if max(len(os.fsencode(part)) for part in path.parts or ("",)) > _LONGEST_PART:
        raise MalformedError(f"{shown(name)} is no name of a file")
    if path.is_absolute() or ".." in path.parts or str(path) != name or name == ".":
        raise MalformedError(f"{shown(name)} does not lie in its directory")
    return name


def open_file(path: Path, root: Path | None = None) -> FileIO:
    """Open a regular file for reading."""
    if root is not None and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise MalformedError(f"{one_line(path.name, 80)} is a link out of its directory")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise MalformedError(f"{one_line(path.name, 80)} is a link to itself") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise MalformedError(f"{one_line(path.name, 80)} is not a regular file")
    return FileIO(fd)


def read_file(path: Path, root: Path | None = None, limit: int = MAX_STRUCTURE) -> bytes:
    """Return the content of a file."""
    with open_file(path, root) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise MalformedError(f"{path.name} has {size:,} bytes, more than {limit:,}")
        return file.read(size)  # it takes the memory at once


# -- Whether memory suffices for the sizes that a file claims, checked before any is allocated.


def check_room(nbytes: int, what: str) -> None:
    """Refuse an allocation that exceeds the free memory."""
    if nbytes < 1 << 24:
        return
    room = _available()
    if room is not None and nbytes > room:
        raise MalformedError(
            f"{what} take {nbytes:,} bytes; {room:,} bytes of memory are free here"
        )


def _available() -> int | None:
    """Return the bytes of memory that this process can still allocate, if known."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        with suppress(OSError, ValueError, IndexError):
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            found.append(max(0, limit - used))
    return min(found, default=None)
