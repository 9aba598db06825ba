"""Checksums of states and parameters."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch
import xxhash

from ...store.tree import flatten


def tree_digest(tree: Any) -> str:
    """The xxh3-128 hash of a state tree."""
    skeleton, tensors = flatten(tree)
    digest = xxhash.xxh3_128(json.dumps(skeleton, allow_nan=False, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        _update(digest, tensors[name])
    return str(digest.hexdigest())


def tensors_digest(tensors: Iterable[torch.Tensor]) -> str:
    """The xxh3-128 hash of tensors, in order."""
    digest = xxhash.xxh3_128()
    for tensor in tensors:
        _update(digest, tensor.clone())  # fully_shard cannot free memory that NumPy has seen
    return str(digest.hexdigest())


def _update(digest: Any, tensor: torch.Tensor) -> None:
    digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    if tensor.numel():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy())
