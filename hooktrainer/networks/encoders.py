"""Encoders: from observations of any space to one vector of features."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey, unravel_key
from torch import Tensor, nn
from torch.nn.functional import relu
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ..base.checks import named
from ..base.space_parts import MASK, Leaf, leaves_of
from ..base.words import did_you_mean
from ..errors import ConfigError
from .layers import RunningNorm, arguments, takes_one


class OwnNetwork(nn.Module):
    """Calls a user's module with a single batch dimension, as modules for images need it.

    It gets one tensor for each leaf, or all concatenated if its ``forward`` takes one.
    `out_features` is found by calling it. BatchNorm, Dropout, and a module that does not fit are
    refused.

    Args:
        given: The module, or a function that makes it from the space.
        space: The space.
        leaves: Its leaves.
        name: Its name in messages.
    """

    def __init__(
        self, given: Any, space: spaces.Space[Any], leaves: Sequence[Leaf], name: str
    ) -> None:
        super().__init__()
        module = given if isinstance(given, nn.Module) or not callable(given) else given(space)
        if not isinstance(module, nn.Module):
            raise ConfigError(
                f"{name} made {module!r:.80}, which is no torch.nn.Module: give a module, or a "
                "function that makes one from the space."
            )
        for path, layer in module.named_modules():
            drops = isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and layer.dropout
            drops = drops or (isinstance(layer, _DropoutNd) and layer.p)
            if drops or isinstance(layer, _BatchNorm) or getattr(layer, "track_running_stats", 0):
                raise ConfigError(
                    f"your network has {layer} at {path!r}, which acts differently than it learns: "
                    "leave out dropout, and use nn.LayerNorm or GroupNorm."
                )
        self.module = module
        self._dims = [len(leaf.shape) for leaf in leaves]
        self._joins = takes_one(module)
        zeros = [
            torch.zeros(2, *leaf.shape, dtype=getattr(torch, leaf.dtype.name)) for leaf in leaves
        ]
        try:
            with torch.no_grad():  # a lazy module gets its parameters by this
                _, self.out_features = self(*zeros).shape
        except Exception as error:
            observed = {unravel_key(leaf.key): [2, *leaf.shape] for leaf in leaves}
            raise ConfigError(
                f"your network does not map observations {observed} to features [2, n]: "
                f"{str(error).partition(chr(10))[0] or type(error).__name__}"
            ) from error

    def forward(self, *arrays: Tensor) -> Tensor:
        """Map the leaves, ``[*batch, *shape]`` each, to ``[*batch, out_features]``."""
        batch = arrays[0].shape[: arrays[0].ndim - self._dims[0]]
        flat = [
            x.reshape(-1, *x.shape[x.ndim - dims :])
            for x, dims in zip(arrays, self._dims, strict=True)
        ]
        features = self.module(*arguments(flat, self._joins))
        return features.reshape(*batch, *features.shape[1:])


Layout = Literal["HWC", "CHW", "HW", "NHWC"]
SMALLEST = 5  # pixels on a side, for convolutions
_LARGEST_SMALL = 36  # the network of Mnih et al. needs that many


def layout_of(space: spaces.Space[Any]) -> Layout | None:
    """The memory layout of the images of a space; ``None`` if they are not images.

    Images are uint8 or bool, or floats in ``[0, 1]``. They have two dimensions of at least 5 pixels
    and a smaller one of channels, first or last; or four dimensions, the first one of stacked
    frames.
    """
    if isinstance(space, spaces.MultiBinary):
        low, high, dtype = np.zeros(1), np.ones(1), np.dtype(bool)
    elif isinstance(space, spaces.Box):
        low, high, dtype = space.low, space.high, np.dtype(space.dtype)
    else:
        return None
    counts = dtype in (np.dtype(np.uint8), np.dtype(bool))
    if not counts and not (dtype.kind == "f" and np.all(low >= 0) and np.all(high <= 1)):
        return None
    shape = tuple(space.shape or ())
    if len(shape) == 2 and counts and min(shape) >= _LARGEST_SMALL:
        return "HW"
    if len(shape) == 4 and min(shape[1:3]) >= SMALLEST and shape[3] <= 4:
        return "NHWC"
    if len(shape) != 3:
        return None
    if min(shape[:2]) >= SMALLEST and shape[2] < min(shape[:2]):
        return "HWC"
    if min(shape[1:]) >= SMALLEST and shape[0] < min(shape[1:]):
        return "CHW"
    if min(shape[:2]) >= SMALLEST and shape[2] <= 2 * max(shape[:2]):  # more channels than pixels
        return "HWC"
    return None


class _ArrayEncoder(nn.Module):
    """Maps arrays ``[*batch, *shape]`` of a space to features ``[*batch, out_features]``."""

    out_features: int

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = tuple(space.shape or ())

    def forward(self, x: Tensor) -> Tensor:
        """The features ``[*batch, out_features]`` of arrays."""
        batch = x.shape[: x.ndim - len(self.shape)]
        return self._encode(x.reshape(-1, *self.shape)).reshape(*batch, self.out_features)

    def _encode(self, x: Tensor) -> Tensor:
        """The features of arrays ``[n, *shape]``."""
        raise NotImplementedError


class _Convolutional(_ArrayEncoder):
    """Convolutions of planes ``[n, channels, height, width]``, which a subclass makes of arrays."""

    def _build(self, make: Callable[[int], nn.Module] | None, planes: Sequence[int]) -> None:
        channels, *pixels = planes
        if make is None:
            make = nature_cnn if min(pixels) >= _LARGEST_SMALL else small_cnn
        self.convolutions = make(channels)
        with torch.no_grad():
            self.out_features = self.convolutions(torch.zeros(1, *planes))[0].numel()

    def _planes(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _encode(self, x: Tensor) -> Tensor:
        return self.convolutions(self._planes(x))


class ImageEncoder(_Convolutional):
    """Maps images ``[*batch, *shape]`` of an environment to features ``[*batch, out_features]``.

    They stay uint8 until here, and are scaled to ``[0, 1]`` by the bounds of their space.
    ``convolutions`` makes the network from the number of channels; by default it is `nature_cnn`,
    or `small_cnn` for small images.
    """

    def __init__(
        self, space: spaces.Space[Any], convolutions: Callable[[int], nn.Module] | None = None
    ) -> None:
        super().__init__(space)
        layout = layout_of(space)
        if layout is None:
            raise ConfigError(f"{space} holds no images.")
        self.layout: Layout = layout
        high = float(np.max(getattr(space, "high", 1)))
        self._scale = 1.0 / high if high > 0 else 1.0
        self._build(convolutions, self._as_chw(torch.zeros(1, *self.shape)).shape[1:])

    def _planes(self, x: Tensor) -> Tensor:
        if x.dtype is torch.bool:
            x = x.view(torch.uint8)  # compiled, conversions of bools are slow, and some fail
        # Channels last in memory: a step of convolutions takes two thirds of the time on a CPU.
        # Converted in the order of the memory: compiled, another one takes ten times as long.
        if self.layout == "HWC":
            return self._as_chw(self._scaled(x)).contiguous(memory_format=torch.channels_last)
        return self._scaled(self._as_chw(x).contiguous(memory_format=torch.channels_last))

    def _scaled(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x.to(torch.get_default_dtype()).mul_(self._scale)  # in the tensor just made
        return x if self._scale == 1.0 else x * self._scale

    def _as_chw(self, images: Tensor) -> Tensor:
        if self.layout == "HWC":
            return images.permute(0, 3, 1, 2)
        if self.layout == "HW":
            return images.unsqueeze(1)
        if self.layout == "NHWC":
            return images.permute(0, 1, 4, 2, 3).flatten(1, 2)
        return images


def nature_cnn(channels: int) -> nn.Sequential:
    """The convolutions of Mnih et al., 2015, Human-level control through deep RL.

    It returns ``[batch, 64, height, width]``: 7 x 7 for images of 84 x 84 pixels, which need at
    least 36 x 36. The paper's layer of 512 units belongs to the hidden layers.
    """
    return nn.Sequential(
        nn.Conv2d(channels, 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
    )


def small_cnn(channels: int) -> nn.Sequential:
    """Convolutions for small images such as those of grid worlds, at least 5 x 5 pixels."""
    return nn.Sequential(nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU())


def no_cnn(channels: int) -> nn.Module:
    """No convolutions: the pixels are features, for the hidden layers."""
    return nn.Identity()


def impala_cnn(channels: int) -> nn.Sequential:
    """The residual network of Espeholt et al., 2018, IMPALA, arXiv:1802.01561, figure 3, right."""
    layers: list[nn.Module] = []
    for depth in (16, 32, 32):
        layers += [
            nn.Conv2d(channels, depth, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            ResidualBlock(depth),
            ResidualBlock(depth),
        ]
        channels = depth
    return nn.Sequential(*layers, nn.ReLU())


class ResidualBlock(nn.Module):
    """Two convolutions with a residual connection, of `impala_cnn`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, channels, height, width]`` to the same shape."""
        return x + self.second(relu(self.first(relu(x))))


Convolutions = Literal["nature", "impala", "small", "flat"]
CONVOLUTIONS: Mapping[str, Callable[[int], nn.Module]] = {
    "nature": nature_cnn,
    "impala": impala_cnn,
    "small": small_cnn,
    "flat": no_cnn,
}
"""Convolutional networks by name; each is made from the number of channels."""
Encoder = str | nn.Module | Callable[[spaces.Space[Any]], nn.Module]
"""A name of ``CONVOLUTIONS``, a module, or a function that makes one from the space."""


class ObservationEncoder(nn.Module):
    """Encodes each array of an observation, and concatenates the features.

    Images and grids of discrete values go through convolutions (`ImageEncoder`, `GridEncoder`).
    Other discrete values become one-hot vectors or embeddings (`DiscreteEncoder`). Everything else
    is a vector (`VectorEncoder`). An action mask is left out.

    Args:
        space: The observation space: Box of any shape and type, Discrete, MultiDiscrete,
            MultiBinary, Dict or Tuple of these, nested.
        convolutions: For images and grids: a name of ``CONVOLUTIONS``, or a function from the
            number of channels to a network; ``None`` chooses by the number of pixels.
        normalize: Whether numbers are normalized by their running mean and variance, which
            `hooktrainer.ObservationNormalizer` updates; or another encoder's `norms`, to share
            them.
        encoders: Replacements by key: a module from ``[batch, *shape]`` to ``[batch, n]``, a
            function that makes one from the space of that entry, or a name of ``convolutions``.

    Attributes:
        in_keys: Keys of the arrays, in the order in which `forward` takes them.
        out_features: Number of features.
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

    def norms(self) -> dict[NestedKey, RunningNorm]:
        """The normalizations, by the key of their input."""
        return {
            key: encoder.norm
            for key, encoder in zip(self.in_keys, self.encoders, strict=True)
            if isinstance(encoder, VectorEncoder) and encoder.norm is not None
        }


def has_convolutions(space: spaces.Space[Any]) -> bool:
    """Whether an array of a space is an image or a grid."""
    return layout_of(space) is not None or cell_of(space) is not None


class EncodedNetwork(nn.Module):
    """A network after an encoder: takes the entries ``encoder.in_keys``, one tensor each.

    With ``with_action`` it is a Q(s, a): the action is the last input, and joins the features.
    """

    def __init__(self, encoder: nn.Module, network: nn.Module, with_action: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        self.network = network
        self._with_action = with_action

    def forward(self, *arrays: Tensor) -> Tensor:
        """The network's output ``[*batch, ...]``."""
        if not self._with_action:
            return self.network(self.encoder(*arrays))
        features = self.encoder(*arrays[:-1])
        action = arrays[-1].reshape(*features.shape[:-1], -1)
        return self.network(torch.cat([features, action], -1))


def _encoder_of(
    leaf: Leaf, convolutions: str | Callable[[int], nn.Module] | None, normalize: bool | RunningNorm
) -> nn.Module:
    space = leaf.space
    if space is not None and has_convolutions(space):
        kind = ImageEncoder if cell_of(space) is None else GridEncoder
        if isinstance(convolutions, str):
            convolutions = named("convolutions", convolutions, CONVOLUTIONS)
        return kind(space, convolutions)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return DiscreteEncoder(space)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return VectorEncoder(space, normalize)
    raise ConfigError(f"the observation {unravel_key(leaf.key)!r} is {space}: give an encoder.")


def _given_encoder(leaf: Leaf, given: Encoder) -> Any:
    key, space = unravel_key(leaf.key), cast("spaces.Space[Any]", leaf.space)
    if not isinstance(given, str):
        return OwnNetwork(given, space, [leaf], f"the encoder of {key!r}")
    if given not in CONVOLUTIONS or not has_convolutions(space):
        hint = "" if given in CONVOLUTIONS else did_you_mean(given, CONVOLUTIONS)
        raise ConfigError(
            f"encoders={{{key!r}: {given!r}}}:{hint} The names are "
            f"{', '.join(CONVOLUTIONS)}, which are for images and grids; {key!r} is {space}."
        )
    return _encoder_of(leaf, given, False)


def cell_of(space: spaces.Space[Any]) -> spaces.MultiDiscrete | None:
    """The space of one cell of a grid; ``None`` if the space is not a grid.

    A grid is a MultiDiscrete ``[height, width]`` or ``[height, width, values]``, at least 5 x 5,
    with the same values in all cells.
    """
    if not isinstance(space, spaces.MultiDiscrete) or len(space.shape) not in (2, 3):
        return None
    sizes = space.nvec.reshape(*space.shape[:2], -1)
    if min(space.shape[:2]) < SMALLEST or np.any(sizes != sizes[0, 0]):
        return None
    return spaces.MultiDiscrete(sizes[0, 0])


class GridEncoder(_Convolutional):
    """Maps grids of discrete values ``[*batch, *shape]`` to features ``[*batch, out_features]``.

    Each value of a cell, which counts from 0, becomes a one-hot vector, whose entries are the
    channels of the convolutions: numbers of objects have neither order nor distance.
    ``convolutions`` is as for `ImageEncoder`.
    """

    def __init__(
        self, space: spaces.Space[Any], convolutions: Callable[[int], nn.Module] | None = None
    ) -> None:
        super().__init__(space)
        cell = cell_of(space)
        if cell is None:
            raise ConfigError(f"{space} holds no grids of cells that are alike.")
        self.values = DiscreteEncoder(cell)
        self._build(convolutions, (self.values.out_features, *self.shape[:2]))

    def _planes(self, x: Tensor) -> Tensor:
        planes = self.values(x.reshape(-1, *self.shape[:2], *self.values.shape))
        return planes.permute(0, 3, 1, 2)


_LARGEST_ONE_HOT = 64


class VectorEncoder(_ArrayEncoder):
    """Flattens numbers of a Box or MultiBinary: ``[*batch, *shape]`` to ``[*batch, out_features]``.

    Bytes are scaled to ``[0, 1]``. With ``normalize`` other numbers, not bits, are normalized by
    running mean and variance, or by the given `RunningNorm`.
    """

    def __init__(self, space: spaces.Space[Any], normalize: bool | RunningNorm = False) -> None:
        super().__init__(space)
        self.out_features = math.prod(self.shape)
        dtype = np.dtype(space.dtype)
        is_byte = dtype.itemsize == 1
        is_wide = float(np.max(getattr(space, "high", 1))) > 15  # not bytes of a few levels
        self._scale = 1.0 / 255 if dtype == np.dtype(np.uint8) and is_wide else 1.0
        if isinstance(normalize, bool):
            wanted = normalize and not is_byte
            self.norm = RunningNorm(self.out_features) if wanted else None
        else:
            self.norm = normalize

    def _encode(self, x: Tensor) -> Tensor:
        flat = x.reshape(len(x), self.out_features).to(torch.get_default_dtype())
        if self._scale != 1.0:
            flat = flat * self._scale
        return flat if self.norm is None else self.norm(flat)


class DiscreteEncoder(_ArrayEncoder):
    """Encodes values of a Discrete or MultiDiscrete, which count from 0.

    Each becomes a one-hot vector; or, if one of them has more than 64 values, 32 features.
    """

    _first: Tensor

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__(space)
        values = space.n if isinstance(space, spaces.Discrete) else space.nvec
        sizes = np.ravel(values).astype(np.int64)
        total, is_large = int(sizes.sum()), max(sizes) > _LARGEST_ONE_HOT
        self.embedding = nn.Embedding(total, 32) if is_large else None
        self.out_features = 32 * len(sizes) if is_large else total
        self.register_buffer("_first", torch.from_numpy(sizes.cumsum() - sizes), persistent=False)

    def _encode(self, x: Tensor) -> Tensor:
        index = x.reshape(len(x), math.prod(self.shape)).long() + self._first
        if self.embedding is not None:
            return self.embedding(index).flatten(1)
        zeros = torch.zeros(len(x), self.out_features, device=x.device)
        return zeros.scatter(1, index, 1.0)
