"""What must be known of a tensor to read it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..base.untrusted import MalformedError, shown
from ..base.untrusted.array_file import check_shape
from ..base.untrusted.read_torch import DTYPES
from ..errors import CheckpointError
from . import fs

_TEXT = re.compile(r"(\w+)\[((?:\d{1,19}(?:, \d{1,19})*)?)\]", re.ASCII)


class TensorSpec(NamedTuple):
    """What must be known of a tensor to read it: its dtype and shape."""

    dtype: torch.dtype
    shape: Sequence[int]

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        """Return the spec of a tensor."""
        return cls(tensor.dtype, tensor.shape)

    def __str__(self) -> str:
        """The spec as text, such as ``float32[3, 4]``."""
        return f"{str(self.dtype)[6:]}{list(self.shape)}"

    @classmethod
    def parse(cls, text: str) -> TensorSpec:
        """Return the spec that was made text.

        Raises:
            MalformedError: If it is no such text, or no tensor has such a shape.
            CheckpointError: If this version of torch has no such dtype.
        """
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise MalformedError(f"{shown(text)} describes no tensor")
        if match[1] not in DTYPES:
            raise CheckpointError(f"torch {torch.__version__} has no dtype {match[1][:40]!r}.")
        shape = tuple(map(int, match[2].split(", "))) if match[2] else ()
        spec = cls(DTYPES[match[1]], shape)
        check_shape(shape, spec.dtype.itemsize)
        return spec


# -- The bytes of tensors.


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
