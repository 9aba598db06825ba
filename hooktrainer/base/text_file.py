"""Files that others may have put a link in the place of."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ..errors import TakenError


def write_atomically(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace a file by way of one next to it, so that it is never half written.

    A link is replaced as well: what it leads to stays as it is.

    Args:
        path: The file.
        content: Its new content.
        durable: Whether to flush it to the disk first.

    Raises:
        TakenError: If there is something else under that name, such as a directory or a device.
    """
    if path.exists() and not path.is_file():
        raise TakenError(f"{path} is no file: choose another name.")
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        beside.unlink(missing_ok=True)  # of a process that died, or a link to somewhere
        with beside.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = error.filename or str(path)
        raise


def open_to_lock(path: Path) -> int:
    """Open a file that is locked, and make it if there is none.

    Returns:
        Its descriptor.

    Raises:
        TakenError: If it is a link.
    """
    try:
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise TakenError(f"{path} is a link: remove it.") from None
