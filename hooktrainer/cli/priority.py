"""Working in the background, so that a run which trains meanwhile is not slowed down."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

_NICENESS: Final = 10


def step_aside() -> None:
    """Give this process a low priority, and PyTorch one thread: there is always another run."""
    import torch

    torch.set_num_threads(1)
    with suppress(OSError, AttributeError):  # a system without priorities
        niceness = max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
