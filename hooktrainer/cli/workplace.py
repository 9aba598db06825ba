"""Where a command trains to look at what comes out."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def workplace(command: str, keep: Path | None, check: Callable[[Path], None]) -> Iterator[Path]:
    """The directory to train in; a temporary one goes if the block raises.

    Args:
        command: The command's name, of which a temporary directory has its own.
        keep: The directory that the user has named; ``None`` for a temporary one.
        check: Looks whether that can be used, and raises if not.
    """
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        check(keep)
        yield keep
        return
    place = Path(tempfile.mkdtemp(prefix=f"hooktrainer-{command}-"))
    try:
        yield place
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
