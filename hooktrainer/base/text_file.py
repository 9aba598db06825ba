"""Writing and locking files without following links."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ..errors import TakenError


def write_atomically(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace a file atomically; a link is replaced, not followed."""
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
    """Open or create a lock file and return its descriptor."""
    try:
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise TakenError(f"{path} is a link: remove it.") from None
