"""`NetworkFactory`: makes the networks of an algorithm for any observation space."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnasium import spaces
from tensordict import NestedKey, unravel_key
from torch import nn

from ..base.checks import named
from ..base.space_parts import MASK, leaves_of
from ..errors import ConfigError
from .encoders import (
    CONVOLUTIONS,
    EncodedNetwork,
    Encoder,
    ObservationEncoder,
    OwnNetwork,
    has_convolutions,
)
from .layers import RunningNorm, fresh_copy, mlp

Layers = Callable[[int, int, Sequence[int], Callable[[], nn.Module]], Any]
"""Makes a multi-layer perceptron with the arguments of `mlp`."""

Description = Encoder | Mapping[str, Encoder]
"""An encoder of observations, see `NetworkFactory`."""

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
}
"""Activations by name."""


class NetworkFactory:
    """Makes networks of an observation: an encoder, hidden layers, an output layer.

    All of its networks share one normalization of observations.

    Args:
        space: The observation space.
        num_cells: Units of each hidden layer after the encoder.
        activation: The activation of hidden layers, a key of ``ACTIVATIONS``.
        encoder: ``None``: an `ObservationEncoder` for the space. ``"nature"``, ``"impala"`` or
            ``"small"``: the same with this convolutional network. A dict: the same with other
            encoders for some keys. A module, or a function that makes one from the space: replaces
            it, and is called with the entries ``in_keys``, concatenated if it takes one tensor. A
            module is copied, with new weights, for further networks. BatchNorm and Dropout are
            refused.
        normalize: Whether numeric observations are normalized, see `RunningNorm`.

    Attributes:
        in_keys: The entries that the networks read.
        has_images: Whether a part of the observation is an image or a grid.
        norms: The normalizations by key, once a network was made.
        shared: The trunk that the networks share, see `after`.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        num_cells: tuple[int, ...] = (64, 64),
        activation: str = "tanh",
        *,
        encoder: Description | None = None,
        normalize: bool = False,
    ) -> None:
        if isinstance(encoder, str):
            more = "; in Python also a module, a function that makes one, or a dict of modules"
            named("network", encoder, CONVOLUTIONS, more)
        self._space = space
        self._num_cells = num_cells
        self._activation = named("activation", activation, ACTIVATIONS)
        self._given = encoder
        self._normalize = normalize
        self._is_used = False
        self._leaves = [leaf for leaf in leaves_of(space) if leaf.key[-1] != MASK]
        self.in_keys: list[NestedKey] = [unravel_key(leaf.key) for leaf in self._leaves]
        found = [leaf.space for leaf in self._leaves if leaf.space is not None]
        self.has_images = any(map(has_convolutions, found))
        if isinstance(encoder, str) and encoder != "flat" and not self.has_images:
            raise ConfigError(
                f"network={encoder!r} has convolutions, which are for images and grids, and the "
                f"observation is {space}: leave network out."
            )
        self.norms: dict[NestedKey, RunningNorm] = {}
        self.shared: nn.Module | None = None
        self._features = 0  # of the shared trunk

    def network(self, outputs: int, make: Layers = mlp) -> nn.Module:
        """A network from an observation to ``[*batch, outputs]``.

        Args:
            outputs: Size of the output.
            make: Makes the hidden layers and the output layer, with the arguments of `mlp`.
        """
        stem, features = self._stem()
        return _joined(stem, self._layers(features, outputs, make))

    def q_network(self, shape: tuple[int, ...], make: Layers = mlp) -> nn.Module:
        """A network from an observation and, last, an encoded action to one value.

        Args:
            shape: Shape of the action.
            make: As for `network`; makes several Q-functions if it returns several outputs.
        """
        stem, features = self._stem()
        layers = self._layers(features + math.prod(shape), 1, make)
        if stem is None and len(shape) == 1:
            return layers
        return EncodedNetwork(stem or nn.Identity(), layers, with_action=True)

    def trunk(self, left_out: int = 0, make: Layers = mlp) -> tuple[nn.Module, int]:
        """A network from an observation to shared features, and their number.

        Args:
            left_out: Number of hidden layers at the end that it does not have.
            make: As for `network`.
        """
        stem, features = self._stem()
        hidden = self._num_cells[: len(self._num_cells) - left_out]
        if not hidden:
            return stem or nn.Identity(), features
        *cells, last = hidden
        layers = make(features, last, cells, self._activation)
        return _joined(stem, nn.Sequential(*layers, self._activation())), last

    def after(
        self, trunk: nn.Module, features: int, in_keys: Sequence[NestedKey], hidden: bool = True
    ) -> NetworkFactory:
        """The factory of networks of the features of a shared trunk.

        Args:
            trunk: Becomes `shared`.
            features: Its number of features.
            in_keys: The entries it reads.
            hidden: Whether networks have hidden layers after it.
        """
        factory = copy.copy(self)
        factory.shared, factory._features, factory.in_keys = trunk, features, list(in_keys)
        if not hidden:
            factory._num_cells = ()
        return factory

    def encoder(self) -> Any:
        """The encoder of an observation, without hidden layers, with its ``out_features``."""
        given = self._given
        encoder: ObservationEncoder | OwnNetwork
        if given is None or isinstance(given, (str, Mapping)):
            own = given if isinstance(given, Mapping) else {}
            convolutions: Any = given if isinstance(given, str) else None
            encoder = ObservationEncoder(
                self._space,
                convolutions,
                normalize=self.norms or self._normalize,
                encoders={key: self._copy(one) for key, one in own.items()},
            )
            self.norms = encoder.norms()
        else:
            encoder = OwnNetwork(self._copy(given), self._space, self._leaves, "network")
        self._is_used = True
        return encoder

    def flat(self) -> ObservationEncoder:
        """An encoder that only puts the numbers of an observation into one vector."""
        return ObservationEncoder(self._space, "flat")

    def _stem(self) -> tuple[nn.Module | None, int]:
        """The module before the layers, if any, and its number of features."""
        if self.shared is not None:
            return None, self._features
        space, leaf = self._space, self._leaves[0]
        is_vector = isinstance(space, spaces.Box) and len(space.shape) == 1
        if self._given is None and is_vector and leaf.dtype.kind == "f":
            [features] = leaf.shape
            if not self._normalize:
                return None, features
            return self.norms.setdefault(self.in_keys[0], RunningNorm(features)), features
        encoder = self.encoder()
        return encoder, encoder.out_features

    def _layers(self, features: int, outputs: int, make: Layers) -> nn.Module:
        if not self._num_cells and make is mlp:
            return nn.Linear(features, outputs)
        return make(features, outputs, self._num_cells, self._activation)

    def _copy(self, given: Encoder) -> Encoder:
        """Copy a module, with new weights, after its first use; return others unchanged."""
        return fresh_copy(given) if self._is_used and isinstance(given, nn.Module) else given


def _joined(stem: nn.Module | None, layers: nn.Module) -> nn.Module:
    if stem is None:
        return layers
    if isinstance(stem, RunningNorm):
        return nn.Sequential(stem, layers)
    return EncodedNetwork(stem, layers)
