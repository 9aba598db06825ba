"""Vector environments whose observations are tensors: they take tensors, and NumPy takes theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def device_of_tensors(tree: Any) -> torch.device | None:
    """Where the first tensor of an observation is; ``None`` if there is none."""
    if isinstance(tree, torch.Tensor):
        return tree.device
    parts = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, tuple) else ()
    return next((found for part in parts if (found := device_of_tensors(part)) is not None), None)


def as_arrays(tree: Any) -> Any:
    """The same with arrays in place of tensors; those of the CPU share their memory."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu().numpy()
    if isinstance(tree, Mapping):
        return {key: as_arrays(value) for key, value in tree.items()}
    return tuple(map(as_arrays, tree)) if isinstance(tree, tuple) else tree
