"""What tests look at: processes, and what runs leave behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hooktrainer.cli.compare import compare_runs
from hooktrainer.store import compare_trees, list_checkpoints


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal, bit for bit."""
    return not list(compare_trees(one, other))


def same_runs(one: Path, other: Path) -> bool:
    """Whether two runs ended alike but for the clock: states, metrics and events."""
    parts = compare_runs(one, other)
    return sum(part.leaves for part in parts) > 100 and not any(part.found for part in parts)


def committed(run: Path) -> list[int]:
    """The frames of the checkpoints of a run."""
    return [c.manifest.frames for c in list_checkpoints(run / "checkpoints").checkpoints]


def rows(run: Path) -> list[str]:
    """The rows of metrics.csv without what the clock measures."""
    return [r for r in (run / "metrics.csv").read_text().splitlines() if ",time/" not in r]


def state_of_process(pid: int) -> str:
    """The letter of a process's state, as ``T`` of one that is stopped; ``Z`` if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    return state_of_process(pid) == "Z"


def wait_for(condition: Callable[[], Any], seconds: float = 180.0, every: float = 0.02) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every)
