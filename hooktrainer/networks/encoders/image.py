"""Images: how they lie in memory, and the convolutional networks for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import relu

from ...errors import ConfigError

Layout = Literal["HWC", "CHW", "HW", "NHWC"]

SMALLEST = 5  # pixels on a side, for convolutions
_LARGEST_SMALL = 36  # the network of Mnih et al. needs that many


def layout_of(space: spaces.Space[Any]) -> Layout | None:
    """How the images of a space lie in memory; ``None`` if they are none.

    Images are uint8 or bool, or floats bounded to ``[0, 1]``, with two dimensions of at least 5
    pixels and, before or behind these, a smaller one of channels; or four dimensions, the first of
    them frames that were stacked.
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


class ImageEncoder(nn.Module):
    """Images, as the environment gives them, to features: ``[*batch, *shape]`` to ``[*batch, n]``.

    They stay uint8 until here, and are scaled to ``[0, 1]`` by the bounds of their space.

    Args:
        space: The space of the images.
        convolutions: Makes the network from the number of channels and the height and width;
            by default `nature_cnn`, or `small_cnn` where that does not fit.

    Attributes:
        out_features: Size of the last dimension.

    Raises:
        ConfigError: If the space holds no images, or the network does not fit them.
    """

    def __init__(
        self, space: spaces.Space[Any], convolutions: Callable[[int], nn.Module] | None = None
    ) -> None:
        super().__init__()
        layout = layout_of(space)
        if layout is None:
            raise ConfigError(f"{space} holds no images.")
        self.shape: tuple[int, ...] = tuple(space.shape or ())
        self.layout: Layout = layout
        high = float(np.max(getattr(space, "high", 1)))
        self._scale = 1.0 / high if high > 0 else 1.0
        channels, *pixels = self._as_chw(torch.zeros(1, *self.shape)).shape[1:]
        self.convolutions, shape = made_convolutions(convolutions, channels, pixels)
        self.out_features = math.prod(shape)

    def forward(self, images: Tensor) -> Tensor:
        """The features of some images."""
        batch = images.shape[: images.ndim - len(self.shape)]
        # Channels last in memory: a step of convolutions takes two thirds of the time on a CPU.
        x = self._as_chw(images.reshape(-1, *self.shape))
        x = x.contiguous(memory_format=torch.channels_last)
        if not x.is_floating_point():
            x = x.to(torch.get_default_dtype()).mul_(self._scale)
        elif self._scale != 1.0:
            x = x * self._scale
        return self.convolutions(x).reshape(*batch, self.out_features)

    def _as_chw(self, images: Tensor) -> Tensor:
        """``[n, channels, height, width]``."""
        if self.layout == "HWC":
            return images.permute(0, 3, 1, 2)
        if self.layout == "HW":
            return images.unsqueeze(1)
        if self.layout == "NHWC":
            return images.permute(0, 1, 4, 2, 3).flatten(1, 2)
        return images


def made_convolutions(
    convolutions: Callable[[int], nn.Module] | None, channels: int, pixels: Sequence[int]
) -> tuple[nn.Module, tuple[int, ...]]:
    """A network for images, and the shape of what it makes of one.

    Args:
        convolutions: Makes it from the number of channels; by default `nature_cnn`, or `small_cnn`
            where that does not fit.
        channels: Of the images.
        pixels: Their height and width.

    Raises:
        ConfigError: If the network does not fit.
    """
    if convolutions is None:
        convolutions = nature_cnn if min(pixels) >= _LARGEST_SMALL else small_cnn
    network = convolutions(channels)
    try:
        with torch.no_grad():
            example = network(torch.zeros(1, channels, *pixels))
    except RuntimeError as error:
        raise ConfigError(
            f"the convolutions do not fit images of {channels} channels and {list(pixels)} pixels "
            f"({str(error).splitlines()[0]})."
        ) from None
    return network, tuple(example.shape[1:])


def nature_cnn(channels: int) -> nn.Sequential:
    """The convolutions of Mnih et al., 2015, Human-level control through deep RL.

    Args:
        channels: Of the images, at least 36 pixels on a side.

    Returns:
        A network to ``[batch, 64, height, width]``; of 84 x 84 pixels 7 x 7 are left. The layer of
        512 units behind it belongs to the network's hidden layers.
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
    """Convolutions for images of a few pixels, such as those of grid worlds.

    Args:
        channels: Of the images, at least 5 pixels on a side.
    """
    return nn.Sequential(nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU())


def impala_cnn(channels: int) -> nn.Sequential:
    """The residual network of Espeholt et al., 2018, IMPALA, arXiv:1802.01561, figure 3, right.

    Args:
        channels: Of the images, at least 5 pixels on a side.
    """
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
    """Two convolutions around which the input goes past, of `impala_cnn`.

    Args:
        channels: Of input and output.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, channels, height, width]`` for such."""
        return x + self.second(relu(self.first(relu(x))))
