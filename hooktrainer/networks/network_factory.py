"""`NetworkFactory`: makes the networks of an algorithm for any observation space."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from gymnasium import spaces
from tensordict import NestedKey, unravel_key
from torch import Tensor, nn

from ..base.space_parts import MASK, leaves_of
from .encoders import (
    CONVOLUTIONS,
    Convolutions,
    EncodedNetwork,
    Encoder,
    ObservationEncoder,
    has_convolutions,
    named,
)
from .inputs import fresh_copy
from .layers import mlp
from .normalization import RunningNorm
from .own_network import OwnNetwork, made_by

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
        norms: The normalizations by key, once a network was made.
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
        self.norms: dict[NestedKey, RunningNorm] = {}

    @property
    def has_images(self) -> bool:
        """Whether a part of the observation is an image or a grid."""
        return any(leaf.space is not None and has_convolutions(leaf.space) for leaf in self._leaves)

    def network(self, outputs: int) -> nn.Module:
        """A network from an observation to ``[*batch, outputs]``."""
        if self._given is None and self._is_vector:
            return self._normalized(self.head(self._features, outputs))
        encoder, features = self.encoder()
        return EncodedNetwork(encoder, self.head(features, outputs))

    def q_network(self, action_space: spaces.Space[Any]) -> nn.Module:
        """A network from an observation and, last, an action of a Box to one value."""
        shape = tuple(action_space.shape or ())
        plain = self._given is None and self._is_vector and not self._normalize
        if plain and len(shape) == 1:
            return self.head(self._features + shape[0], 1)
        encoder, features = self.encoder()
        return StateActionNetwork(encoder, self.head(features + math.prod(shape), 1))

    def trunk(self) -> tuple[nn.Module, int]:
        """A network from an observation to shared features, and their number."""
        if self._given is None and self._is_vector and self._num_cells:
            layers, last = self.hidden(self._features)
            return self._normalized(layers), last
        encoder, features = self.encoder()
        if not self._num_cells:
            return encoder, features
        layers, last = self.hidden(features)
        return EncodedNetwork(encoder, layers), last

    def hidden(self, features: int) -> tuple[nn.Sequential, int]:
        """The hidden layers, from some features, and the number of features they return."""
        if not self._num_cells:
            return nn.Sequential(), features
        *cells, last = self._num_cells
        layers = mlp(features, last, cells, self._activation)
        return nn.Sequential(*layers, self._activation()), last

    def head(self, features: int, outputs: int) -> nn.Sequential:
        """Hidden layers and an output layer, from features to ``[*batch, outputs]``."""
        return mlp(features, outputs, self._num_cells, self._activation)

    def q_head(self, features: int, action_space: spaces.Space[Any]) -> nn.Module:
        """The same from features and, last, a continuous action to one value."""
        layers = self.head(features + math.prod(action_space.shape or ()), 1)
        return StateActionNetwork(nn.Identity(), layers)

    @property
    def _is_vector(self) -> bool:
        space = self._space
        return (
            isinstance(space, spaces.Box)
            and len(space.shape) == 1
            and self._leaves[0].dtype.kind == "f"
        )

    @property
    def _features(self) -> int:
        return self._leaves[0].shape[0]

    def _normalized(self, network: nn.Sequential) -> nn.Sequential:
        if not self._normalize:
            return network
        norm = self.norms.setdefault("observation", RunningNorm(self._features))
        return nn.Sequential(norm, network)

    def encoder(self) -> tuple[nn.Module, int]:
        """The encoder of an observation, without hidden layers, and its number of features."""
        given = self._given
        encoder: ObservationEncoder | OwnNetwork
        if given is None or isinstance(given, (str, Mapping)):
            encoder = ObservationEncoder(
                self._space,
                cast(Convolutions, given) if isinstance(given, str) else None,
                normalize=self.norms if self.norms else self._normalize,
                encoders={key: self._copy(one) for key, one in given.items()}
                if isinstance(given, Mapping)
                else None,
            )
            self.norms = encoder.norms()
        else:
            own: Any = self._copy(given)
            if not isinstance(own, nn.Module):
                own = made_by(own, self._space, "network")
            encoder = OwnNetwork(own, self._leaves)
        self._is_used = True
        return encoder, encoder.out_features

    def _copy(self, given: Encoder) -> Encoder:
        """A module with new weights after its first use; others as they are."""
        return fresh_copy(given) if self._is_used and isinstance(given, nn.Module) else given


class StateActionNetwork(nn.Module):
    """Q(s, a): an encoder of the observation, and a network of its features and the action."""

    def __init__(self, encoder: nn.Module, network: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.network = network

    def forward(self, *inputs: Tensor) -> Tensor:
        """Map the entries of the observation and, last, the action to ``[*batch, 1]``."""
        *arrays, action = inputs
        features = self.encoder(*arrays)
        flat = action.reshape(*features.shape[:-1], -1)
        return self.network(torch.cat([features, flat], -1))
