"""A progress bar over frames or samples, redrawn on a terminal, printed as lines in a file."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any
from weakref import WeakSet

from tqdm import tqdm

from .notebook import in_kernel

SECONDS = 30.0
"""Interval between lines outside a terminal."""


def frames_bar(unit: str = "frames", **kwargs: Any) -> tqdm:  # type: ignore[type-arg]
    """Return a `tqdm` bar over frames; the other arguments are those of `tqdm`."""
    look: dict[str, Any] = {"unit": f" {unit}", "unit_scale": True, "smoothing": 0.1}
    if in_kernel() or (sys.stderr is not None and sys.stderr.isatty()):
        return tqdm(**look, dynamic_ncols=True, **kwargs)
    return _Lines(**look, mininterval=SECONDS, maxinterval=SECONDS, **kwargs)


def show_frames(bar: Any, frames: int) -> bool:
    """Move a bar to a number of frames, possibly beyond its end; return whether it was drawn."""
    bar.total = bar.total and max(bar.total, frames)
    return bool(bar.update(frames - bar.n))


def print_line(line: str) -> None:
    """Print a line above the bars, on the first of the processes that ``torchrun`` numbers."""
    if os.environ.get("RANK", "0") == "0":
        tqdm.write(line)


@contextmanager
def without_monitor() -> Iterator[None]:
    """In the block, no bar starts tqdm's thread, not those of libraries either."""
    before = tqdm.monitor_interval
    tqdm.monitor_interval = 0
    try:
        yield
    finally:
        tqdm.monitor_interval = before


def forget_bars() -> None:
    """Detach a forked process from its parent's bars and their locks."""
    tqdm.set_lock(threading.RLock())
    tqdm._instances = WeakSet()  # type: ignore[attr-defined]


class _Lines(tqdm):  # type: ignore[type-arg]
    """A bar that writes lines."""

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:
        """Return the function that writes the bar."""
        breaks = chain([""], repeat("\n"))  # tqdm itself ends the last line
        return lambda line: print(next(breaks), line, sep="", end="", file=file, flush=True)
