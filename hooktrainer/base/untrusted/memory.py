"""Whether there is memory for what a file claims, asked before any is taken."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

from .text import MalformedError


def check_room(nbytes: int, what: str) -> None:
    """Refuse what this machine has no memory for.

    Args:
        nbytes: The bytes it takes.
        what: What takes them, for the message.

    Raises:
        MalformedError: If there are not so many.
    """
    if nbytes < 1 << 24:
        return
    room = _available()
    if room is not None and nbytes > room:
        raise MalformedError(
            f"{what} take {nbytes:,} bytes; {room:,} bytes of memory are free here"
        )


def _available() -> int | None:
    """Bytes of memory that this process can still get, as far as the system tells."""
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
