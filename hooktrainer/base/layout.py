"""How a tensor lies in memory."""

from __future__ import annotations

import torch


def laid_out_as(like: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the strides of another of its shape; a copy only if it has others.

    Autograd gives a gradient the strides of its parameter, and fused optimizers rely on it: they
    walk through the memory of both.

    Args:
        like: Has the strides.
        tensor: The tensor.
    """
    if tensor.stride() == like.stride():
        return tensor
    return torch.empty_like(like, dtype=tensor.dtype).copy_(tensor)
