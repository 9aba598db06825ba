"""Reading a file that somebody else may have made: itself and nothing else, and not too much."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_own(path: Path, most: int) -> bytes:
    """Return the content of a plain file; a link is not followed.

    A pipe or a device, which could be waited for or read without end, is refused as well.

    Args:
        path: The file.
        most: So many bytes it may have.

    Raises:
        OSError: As the disk gives it; or if it is no plain file, or larger.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
        return file.read(most)
