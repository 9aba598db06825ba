"""`ObservationEncoder`: from an observation of any space to one vector of features."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey, unravel_key
from torch import Tensor, nn

from ...base.space_parts import MASK, Leaf, leaves_of
from ...base.words import did_you_mean
from ...errors import ConfigError
from ..normalization import RunningNorm
from ..own_network import OwnNetwork, made_by
from .image import (
    SMALLEST,
    ImageEncoder,
    impala_cnn,
    layout_of,
    made_convolutions,
    nature_cnn,
    small_cnn,
)
from .leaf import DiscreteEncoder, VectorEncoder

Convolutions = Literal["nature", "impala", "small"]
CONVOLUTIONS: Mapping[str, Callable[[int], nn.Module]] = {
    "nature": nature_cnn,
    "impala": impala_cnn,
    "small": small_cnn,
}
"""Convolutional networks by name; each is made from the number of channels."""
Encoder = str | nn.Module | Callable[[spaces.Space[Any]], nn.Module]
"""What encodes: a name of ``CONVOLUTIONS``, a module, or what makes one from the space."""


class ObservationEncoder(nn.Module):
    """Encodes each array of an observation by what it is, and joins the features.

    Images go through convolutions (`ImageEncoder`), as grids of discrete values do (`GridEncoder`),
    other discrete values become one-hot vectors or are embedded (`DiscreteEncoder`), everything
    else is a vector (`VectorEncoder`). An action mask is left out.

    Args:
        space: The observation space: Box of any shape and type, Discrete, MultiDiscrete,
            MultiBinary, Dict or Tuple of these, nested.
        convolutions: For images and grids: ``"nature"``, ``"impala"``, ``"small"``, or what makes a
            network from the number of channels; ``None`` chooses by the number of pixels.
        normalize: Whether numbers are normalized by their running mean and variance, which
            `hooktrainer.ObservationNormalizer` updates; or what another encoder's `norms` gave, to
            share them.
        encoders: What takes the place of those that would be made, by key: a module from
            ``[batch, *shape]`` to ``[batch, n]``, a function that makes one from the space of that
            entry, or the name of ``convolutions``.

    Attributes:
        in_keys: Keys of the arrays, in the order in which `forward` takes them.
        out_features: Size of the features.

    Raises:
        ConfigError: If an array has no encoder here, or a key of ``encoders`` is none of the space.

    Examples:
        >>> space = spaces.Dict(image=spaces.Box(0, 255, (84, 84, 3), "uint8"),
        ...                     carries=spaces.Discrete(3))
        >>> ObservationEncoder(space).in_keys
        ['image', 'carries']
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        convolutions: Convolutions | Callable[[int], nn.Module] | None = None,
        *,
        normalize: bool | Mapping[NestedKey, RunningNorm] = False,
        encoders: Mapping[Any, Encoder] | None = None,
    ) -> None:
        super().__init__()
        given = {unravel_key(key): one for key, one in (encoders or {}).items()}
        leaves = [leaf for leaf in leaves_of(space) if leaf.key[-1] != MASK]
        self.in_keys: list[NestedKey] = [unravel_key(leaf.key) for leaf in leaves]
        if unknown := [key for key in given if key not in self.in_keys]:
            raise ConfigError(
                f"encoders={unknown}: the observation has the keys {self.in_keys}; name one of "
                "these."
            )
        shared = {} if isinstance(normalize, bool) else normalize
        made: list[Any] = [
            _given_encoder(leaf, given[key])
            if key in given
            else _encoder_of(leaf, convolutions, shared.get(key) or bool(normalize))
            for key, leaf in zip(self.in_keys, leaves, strict=True)
        ]
        self.encoders = nn.ModuleList(made)
        self.out_features = sum(encoder.out_features for encoder in made)

    def forward(self, *arrays: Tensor) -> Tensor:
        """The features ``[*batch, out_features]`` of the entries ``in_keys``."""
        parts = [encoder(x) for encoder, x in zip(self.encoders, arrays, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    @property
    def has_images(self) -> bool:
        """Whether a part of the observation goes through convolutions."""
        return any(isinstance(encoder, ImageEncoder | GridEncoder) for encoder in self.encoders)

    def norms(self) -> dict[NestedKey, RunningNorm]:
        """The normalizations, by the key of what they normalize."""
        return {
            key: encoder.norm
            for key, encoder in zip(self.in_keys, self.encoders, strict=True)
            if isinstance(encoder, VectorEncoder) and encoder.norm is not None
        }


def has_convolutions(space: spaces.Space[Any]) -> bool:
    """Whether an array of a space is an image or a grid, which go through convolutions."""
    return layout_of(space) is not None or cell_of(space) is not None


class EncodedNetwork(nn.Module):
    """A network behind an encoder: takes the entries ``encoder.in_keys``, one tensor each.

    Args:
        encoder: To features.
        network: From features.
    """

    def __init__(self, encoder: nn.Module, network: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.network = network

    def forward(self, *arrays: Tensor) -> Tensor:
        """``[*batch, ...]`` of the network."""
        return self.network(self.encoder(*arrays))


def _encoder_of(
    leaf: Leaf, convolutions: str | Callable[[int], nn.Module] | None, normalize: bool | RunningNorm
) -> nn.Module:
    space = leaf.space
    if space is not None and has_convolutions(space):
        kind = ImageEncoder if cell_of(space) is None else GridEncoder
        try:
            return kind(space, _convolutions(convolutions))
        except ConfigError as error:
            raise ConfigError(f"the observation {unravel_key(leaf.key)!r}: {error}") from None
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return DiscreteEncoder(space)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return VectorEncoder(space, normalize)
    raise ConfigError(f"the observation {unravel_key(leaf.key)!r} is {space}: give an encoder.")


def _convolutions(
    given: str | Callable[[int], nn.Module] | None,
) -> Callable[[int], nn.Module] | None:
    if isinstance(given, str):
        if given not in CONVOLUTIONS:
            raise ConfigError(f"convolutions={given!r}: the choices are {', '.join(CONVOLUTIONS)}.")
        return CONVOLUTIONS[given]
    return given


def _given_encoder(leaf: Leaf, given: Encoder) -> Any:
    """The encoder of one entry, of what was given for it."""
    key, space = unravel_key(leaf.key), cast("spaces.Space[Any]", leaf.space)
    if isinstance(given, str):
        if given not in CONVOLUTIONS or not has_convolutions(space):
            raise ConfigError(
                f"encoders={{{key!r}: {given!r}}}:{did_you_mean(given, CONVOLUTIONS)} The names "
                f"are {', '.join(CONVOLUTIONS)}, which are for images and grids; {key!r} is "
                f"{space}."
            )
        return _encoder_of(leaf, given, False)
    if isinstance(given, nn.Module):
        return OwnNetwork(given, [leaf])
    return OwnNetwork(made_by(given, space, f"the encoder of {key!r}"), [leaf])


# -- Grids whose cells hold discrete values, such as an object and its color.


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
        self, space: spaces.Space[Any], convolutions: Callable[[int], nn.Module] | None = None
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

    def forward(self, grids: Tensor) -> Tensor:
        """The features of some grids."""
        batch = grids.shape[: grids.ndim - len(self.shape)]
        planes = self.values(grids.reshape(-1, *self.shape[:2], *self.values.shape))
        return self.convolutions(planes.permute(0, 3, 1, 2)).reshape(*batch, self.out_features)
