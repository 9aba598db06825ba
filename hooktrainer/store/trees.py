"""The priorities in a prioritized sampler of TorchRL: C++ trees, saved as their leaves.

The sums and minima above the leaves follow from them, so that a tree that was rebuilt draws what
the one that was saved would have drawn.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from ..errors import CheckpointError

EXTENSION = "torchrl._torchrl"
_KINDS = frozenset(
    f"{device}{what}SegmentTreeFp{bits}"
    for device in ("", "Cuda")
    for what in ("Sum", "Min")
    for bits in (32, 64)
)


def is_tree(value: Any) -> bool:
    """Whether ``value`` is such a tree."""
    return type(value).__module__ == EXTENSION and type(value).__name__ in _KINDS


def leaves(tree: Any) -> torch.Tensor:
    """The leaves of a tree, ``[size]``, on its device."""
    device = getattr(tree, "device", "cpu")
    return torch.as_tensor(tree[torch.arange(len(tree), device=device)])


def rebuild(kind: str, values: torch.Tensor) -> Any:
    """The tree of a kind with these leaves; one from a GPU is one of the CPU where there is none.

    Raises:
        CheckpointError: If TorchRL's C++ extension does not load, or has no such tree.
    """
    if not values.is_cuda:
        kind = kind.removeprefix("Cuda")
    try:
        extension = import_module(EXTENSION)
    except ImportError as error:
        raise CheckpointError(
            "the state holds the priorities of a TorchRL sampler, and TorchRL's C++ extension does "
            f"not load with torch {torch.__version__} ({error}). Install the version of torch that "
            "it was built for, or use hooktrainer.replay.PrioritizedSampler."
        ) from error
    made = getattr(extension, kind, None) if kind in _KINDS else None
    if made is None or values.ndim != 1 or f"Fp{values.element_size() * 8}" not in kind:
        raise CheckpointError(f"the state holds a tree {kind!r}, which TorchRL does not have.")
    tree = made(len(values), values.device) if values.is_cuda else made(len(values))
    tree[torch.arange(len(values), device=values.device)] = values
    return tree
