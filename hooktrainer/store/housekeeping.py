"""Moving checkpoints out of the way and deleting them, so that none is ever half there."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from . import fs, lock
from .manifest import FILE as MANIFEST
from .retention import AnySaved, Best, Last, Retention

_log = logging.getLogger(__name__)

UNFINISHED = ".tmp-*"
TRASH = ".trash-*"


def free_path(directory: Path, frames: int) -> Path:
    """Return a name for a new checkpoint: ``step_<12 digits>``, and a number behind if taken."""
    base = path = directory / f"step_{frames:012d}"
    count = 1
    while os.path.lexists(path):
        count += 1
        path = base.with_name(f"{base.name}-{count}")
    return path


def move_away(path: Path, prefix: str) -> Path:
    """Rename a checkpoint, durably, to a name that no listing shows; return its new path."""
    target = path.with_name(f"{prefix}-{path.name}-{secrets.token_hex(4)}")
    fs.rename(path, target)
    fs.flush_to_disk(path.parent)
    return target


def sweep(directory: Path, *patterns: str) -> None:
    """Delete what matches; what cannot be deleted is logged."""
    for pattern in patterns:
        for path in sorted(directory.glob(pattern)):
            try:
                fs.remove_tree(path)
            except OSError as error:
                _log.warning("%s could not be deleted, and is tried again: %s", path, error)


def delete(path: Path) -> bool:
    """Delete a checkpoint, unless someone reads it. Return whether it is gone from the listing.

    It is renamed first: a crash in the midst leaves no half of it under its name.
    """
    try:
        with lock.not_reading(path / MANIFEST) as free:
            if not free:
                _log.info("%s is being read: it is deleted later.", path)
                return False
            trash = move_away(path, ".trash")
    except OSError as error:
        _log.warning("%s could not be deleted, and is tried again: %s", path, error)
        return False
    sweep(path.parent, trash.name)
    return True


def quarantine(path: Path, reason: str) -> None:
    """Set a damaged checkpoint aside as ``damaged-…``, with the reason in ``reason.txt``."""
    try:
        moved = move_away(path, "damaged")
        fs.write_file(moved / "reason.txt", f"{reason}\n".encode())
    except OSError as error:
        _log.warning("%s could not be set aside: %s", path, error)


def surplus(saved: Sequence[AnySaved], keep: Retention, best: Best | None) -> list[AnySaved]:
    """Return what is not to be kept, the oldest first; the latest and the best stay anyway."""
    kept = keep.keep(saved) | Last(1).keep(saved)
    if best:
        kept |= {one.path for one in best.ranked(saved)[:1]}
    return [one for one in saved if one.path not in kept]
