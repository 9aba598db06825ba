"""A small text file that is replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a file by way of one beside it, so that it is never half written.

    Args:
        path: The file.
        text: Its new content.
        durable: Whether to flush it to the disk first.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        beside.unlink(missing_ok=True)  # of a process that died, or a link to somewhere
        with beside.open("x", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = error.filename or str(path)
        raise
