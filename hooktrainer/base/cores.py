"""CPU cores and threads of this process, and the memory of its machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch


def available_cores() -> set[int]:
    """Return the numbers of the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


_AT_FIRST: Final = frozenset(available_cores())  # before anything was pinned


def pin(cores: Any) -> None:
    """Restrict this process to some CPU cores, if the system supports it."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(cores))


@contextmanager
def unpinned() -> Iterator[None]:
    """Let processes started in the block use all cores that this process had at its start.

    Processes inherit the cores of their parent, such as a pinned learner.
    """
    now = available_cores()
    pin(_AT_FIRST)
    try:
        yield
    finally:
        pin(now)


# -- How many threads of the CPU torch computes with: one for small networks.

SMALL = 500_000
"""Parameters below which one thread computes a loss."""
_CHOSEN_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_AT_IMPORT = torch.get_num_threads()


def threads_for(module: Any) -> int | None:
    """Return the number of threads for a loss; ``None`` for torch's current number.

    ``OMP_NUM_THREADS`` and ``torch.set_num_threads`` take precedence.
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
    """In the block, torch uses ``number`` threads; ``None`` for its current number."""
    before = torch.get_num_threads()
    if number is None or number == before:
        yield
        return
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def memory_size() -> int:
    """Return the bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
