"""Targets whose readers do each thing that is a fault: what does not see it sees nothing."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Target

WRONG: dict[str, Callable[[], Any]] = {
    "exception": lambda: {}["x"],
    "crash": os.abort,
    "hang": lambda: time.sleep(1000),
    "memory": lambda: int(np.ones(300 << 20, np.uint8).sum()),
    "executed": lambda: os.system("true"),
    "leak": lambda: torch.empty(1000, dtype=torch.uint8),
}


def _opening(fault: str) -> Callable[[Path], Any]:
    def opened(_: Path) -> Any:
        if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            return None  # nothing is watched yet
        return WRONG[fault]()

    return opened


def targets() -> list[Target]:
    """A target of each fault."""
    return [Target(name, lambda: {"x": b""}, lambda *_: None, _opening(name)) for name in WRONG]
