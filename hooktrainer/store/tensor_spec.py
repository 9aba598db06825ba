"""What must be known of a tensor to read it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ..base.untrusted import MalformedError, shown
from ..base.untrusted.array_file import check_shape
from ..base.untrusted.torch_pickle import DTYPES
from ..errors import CheckpointError

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
