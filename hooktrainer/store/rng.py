"""The random state of a process: Python, NumPy, torch on the CPU and on every CUDA device."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ..base.untrusted.array_file import check_bit_generator


def rng_state() -> dict[str, Any]:
    """Return the state of every global random generator, as a state tree.

    CUDA generators are included once CUDA is in use: asking earlier would create a context on every
    device.

    Returns:
        ``python``: what `random.getstate` returns; ``numpy``: the legacy global generator's state;
        ``torch``: the CPU generator's state, uint8 ``[5056]``; ``cuda``: one uint8 tensor per
        device, on the CPU.
    """
    cuda_in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if cuda_in_use else [],
    }


def seed_generators(seed: int) -> None:
    """Seed the global random generators of Python, NumPy and torch with one number."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seed_of(entropy: int | Sequence[int]) -> int:
    """A number that is drawn from entropy; below 2³²."""
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])


def seed_all(entropy: int | Sequence[int]) -> None:
    """Seed the global random generators with a number that is drawn from entropy."""
    seed_generators(seed_of(entropy))


def set_rng_state(state: dict[str, Any]) -> None:
    """Set every global random generator to a state that `rng_state` returned.

    Warns:
        RuntimeWarning: If this process has fewer CUDA devices than the state; the states of the
            devices it lacks have nowhere to go.
    """
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"].cpu())
    devices = min(torch.cuda.device_count(), len(state["cuda"]))
    for device in range(devices):
        torch.cuda.set_rng_state(state["cuda"][device].cpu(), device)
    if devices < len(state["cuda"]):
        warnings.warn(
            f"The random state of {len(state['cuda'])} CUDA devices was saved and this machine has "
            f"{devices}: the run continues, but not bit for bit.",
            RuntimeWarning,
            stacklevel=2,
        )


def check_rng_state(state: Any) -> None:
    """Check a state of every global random generator of the CPU, without changing any.

    Raises:
        Exception: Of any kind, if it is none.
    """
    with undisturbed():
        check_bit_generator(state["numpy"])  # NumPy itself does not
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch.set_rng_state(state["torch"].cpu())
    if not all(isinstance(cuda, torch.Tensor) for cuda in state["cuda"]):
        raise TypeError("the state of a CUDA device is a tensor")


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the state of every random generator at the end of the block."""
    state = rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
