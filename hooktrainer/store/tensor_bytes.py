"""The bytes of a tensor."""

from __future__ import annotations

import torch


def byte_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements as uint8 ``[nbytes]`` on the CPU, without a copy if possible."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def memory(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a uint8 tensor from `byte_view`, writable."""
    return tensor.numpy().data
