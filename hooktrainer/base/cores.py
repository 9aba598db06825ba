"""The CPU cores that this process, and those it starts, may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch


def available_cores() -> set[int]:
    """Numbers of the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


_AT_FIRST: Final = frozenset(available_cores())  # before anything was pinned


def pin(cores: Any) -> None:
    """Let this process run on these CPU cores only, where the system can do that."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(cores))


@contextmanager
def unpinned() -> Iterator[None]:
    """What is started in the block may use all cores that this process had when it began.

    Processes inherit the cores of the one that starts them: those that a pinned learner starts
    would crowd together on its own.
    """
    now = available_cores()
    pin(_AT_FIRST)
    try:
        yield
    finally:
        pin(now)


# -- How many threads of the CPU torch computes with: one for small networks.

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
