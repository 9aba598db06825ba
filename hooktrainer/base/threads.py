"""How many threads of the CPU torch computes with: one for small networks.

A second thread gains little where an optimizer step takes a millisecond, and costs several times as
much as soon as it has to wait for a core; `docs/timing.md` has the measurements.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

SMALL = 500_000
"""Parameters below which a loss's networks are small: one thread computes them."""

_CHOSEN_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_AT_IMPORT = torch.get_num_threads()


def threads_for(module: Any) -> int | None:
    """How many threads to compute a loss with; ``None`` for as many as torch has now.

    Whoever sets ``OMP_NUM_THREADS`` or calls ``torch.set_num_threads`` has chosen.

    Args:
        module: The loss, with the networks it trains.
    """
    chosen = any(name in os.environ for name in _CHOSEN_BY)
    if chosen or torch.get_num_threads() != _AT_IMPORT or not isinstance(module, torch.nn.Module):
        return None
    parameters = list(module.parameters())
    on_cpu = all(parameter.device.type == "cpu" for parameter in parameters)
    small = sum(parameter.numel() for parameter in parameters) < SMALL
    return 1 if parameters and on_cpu and small else None


@contextmanager
def compute_threads(number: int | None) -> Iterator[None]:
    """In the block torch computes with ``number`` threads; ``None`` for as many as it has now."""
    before = torch.get_num_threads()
    if number is None or number == before:
        yield
        return
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
