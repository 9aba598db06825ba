"""The bytes of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from . import fs


def byte_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements as uint8 ``[nbytes]`` on the CPU, without a copy if possible."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def memory(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a uint8 tensor from `byte_view`, writable."""
    return tensor.numpy().data


def torch_save(content: Any, file: fs.NewFile) -> None:
    """`torch.save` to an open file; the disk's own error is the one that is raised."""
    try:
        torch.save(content, file)  # type: ignore[arg-type]
    except RuntimeError:
        if file.error is not None:
            raise file.error from None
        raise


def compact(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return contiguous CPU tensors, each of which alone has a storage, and of its own size.

    `torch.save` writes a tensor's whole storage, however small the view, and restores tensors that
    shared one as sharing one.
    """
    compacted, seen = {}, set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage.nbytes() > tensor.nbytes or storage.data_ptr() in seen:
            tensor = tensor.clone()
        seen.add(storage.data_ptr())
        compacted[name] = tensor
    return compacted
