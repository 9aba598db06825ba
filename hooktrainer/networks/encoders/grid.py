"""Grids whose cells hold discrete values, such as an object and its color."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from ...errors import ConfigError
from .image import SMALLEST, made_convolutions
from .leaf import DiscreteEncoder


def cell_of(space: spaces.Space[Any]) -> spaces.MultiDiscrete | None:
    """The space of one cell of a grid; ``None`` if the space is no grid.

    A grid is a MultiDiscrete ``[height, width]`` or ``[height, width, values]`` of at least 5 cells
    on a side, all of which can hold the same values.
    """
    if not isinstance(space, spaces.MultiDiscrete) or len(space.shape) not in (2, 3):
        return None
    sizes = space.nvec.reshape(*space.shape[:2], -1)
    if min(space.shape[:2]) < SMALLEST or np.any(sizes != sizes[0, 0]):
        return None
    return spaces.MultiDiscrete(sizes[0, 0])


class GridEncoder(nn.Module):
    """Grids of discrete values to features: ``[*batch, *shape]`` to ``[*batch, features]``.

    Each value of a cell becomes a one-hot vector (`DiscreteEncoder`), whose places are the planes
    that convolutions see: numbers that stand for objects have no order and no distance.

    Args:
        space: The space of the grids, see `cell_of`; values count from 0.
        convolutions: Makes the network from the number of planes; by default `small_cnn`.

    Attributes:
        out_features: Size of the last dimension.

    Raises:
        ConfigError: If the space holds no grids, or the network does not fit them.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        convolutions: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        cell = cell_of(space)
        if cell is None:
            raise ConfigError(f"{space} holds no grids of cells that are alike.")
        self.shape: tuple[int, ...] = tuple(space.shape or ())
        self.values = DiscreteEncoder(cell)
        self.convolutions, shape = made_convolutions(
            convolutions, self.values.out_features, self.shape[:2]
        )
        self.out_features = math.prod(shape)

    def forward(self, grids: torch.Tensor) -> torch.Tensor:
        """The features of some grids."""
        batch = grids.shape[: grids.ndim - len(self.shape)]
        planes = self.values(grids.reshape(-1, *self.shape[:2], *self.values.shape))
        return self.convolutions(planes.permute(0, 3, 1, 2)).reshape(*batch, self.out_features)
