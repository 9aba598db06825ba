"""Encoders of one array of an observation: numbers, and discrete values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from ..normalization import RunningNorm

_LARGEST_ONE_HOT = 64
_EMBEDDING = 32


class VectorEncoder(nn.Module):
    """Numbers of any shape and type, flat: ``[*batch, *shape]`` to ``[*batch, features]``.

    Integers with narrow bounds, as a byte has them, are scaled to ``[0, 1]``.

    Args:
        space: A Box or MultiBinary.
        normalize: Whether the features are normalized by their running mean and variance; bits and
            bytes are not. Or what normalizes them.

    Attributes:
        norm: Does that; ``None`` if they are not normalized.
        out_features: Size of the last dimension.
    """

    def __init__(self, space: spaces.Space[Any], normalize: bool | RunningNorm = False) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = tuple(space.shape or ())
        self.out_features = math.prod(self.shape)
        dtype = np.dtype(space.dtype)
        is_byte = dtype.itemsize == 1
        self._scale = 1.0 / 255 if dtype == np.dtype(np.uint8) and _is_wide(space) else 1.0
        if isinstance(normalize, bool):
            wanted = normalize and not is_byte
            self.norm = RunningNorm(self.out_features) if wanted else None
        else:
            self.norm = normalize

    def forward(self, x: Tensor) -> Tensor:
        """The features of some arrays."""
        batch = x.shape[: x.ndim - len(self.shape)]
        flat = x.reshape(*batch, self.out_features).to(torch.get_default_dtype())
        if self._scale != 1.0:
            flat = flat * self._scale
        return flat if self.norm is None else self.norm(flat)


class DiscreteEncoder(nn.Module):
    """Discrete values: each as a one-hot vector, or embedded if it has more than 64 values.

    Args:
        space: Discrete or MultiDiscrete.

    Attributes:
        out_features: Size of the last dimension.
    """

    _values: Tensor

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = tuple(space.shape or ())
        sizes = (
            [int(space.n)] if isinstance(space, spaces.Discrete) else space.nvec.ravel().tolist()
        )
        self._sizes = sizes
        self.embeddings = nn.ModuleDict(
            {
                str(place): nn.Embedding(size, _EMBEDDING)
                for place, size in enumerate(sizes)
                if size > _LARGEST_ONE_HOT
            }
        )
        self.out_features = sum(_EMBEDDING if size > _LARGEST_ONE_HOT else size for size in sizes)
        self.register_buffer("_values", torch.arange(_LARGEST_ONE_HOT), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The features of some values, integers ``[*batch, *shape]``."""
        batch = x.shape[: x.ndim - len(self.shape)]
        columns = x.reshape(*batch, len(self._sizes))
        parts = []
        for place, size in enumerate(self._sizes):
            if size > _LARGEST_ONE_HOT:
                parts.append(self.embeddings[str(place)](columns[..., place].long()))
            else:
                one_hot = columns[..., place, None] == self._values[:size]
                parts.append(one_hot.to(torch.get_default_dtype()))
        return torch.cat(parts, -1)


def _is_wide(space: spaces.Space[Any]) -> bool:
    """Whether bytes are more than a few levels."""
    return float(np.max(getattr(space, "high", 1))) > 15
