"""Networks given by a user: made from a function, checked, measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from tensordict import unravel_key
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from ..base.space_parts import Leaf
from ..errors import ConfigError
from .inputs import arguments, takes_one


class OwnNetwork(nn.Module):
    """Calls a user's module with a single batch dimension, as modules for images need it.

    It gets one tensor for each leaf, or all concatenated if its ``forward`` takes one.
    `out_features` is found by calling it. BatchNorm, Dropout, and a module that does not fit are
    refused.
    """

    def __init__(self, module: nn.Module, leaves: Sequence[Leaf]) -> None:
        super().__init__()
        _check_layers(module)
        self.module = module
        self._dims = [len(leaf.shape) for leaf in leaves]
        self._joins = takes_one(module)
        self.out_features = self._measure(leaves)

    def forward(self, *arrays: Tensor) -> Tensor:
        """Map the leaves, ``[*batch, *shape]`` each, to ``[*batch, out_features]``."""
        batch = arrays[0].shape[: arrays[0].ndim - self._dims[0]]
        flat = [
            x.reshape(-1, *x.shape[x.ndim - dims :])
            for x, dims in zip(arrays, self._dims, strict=True)
        ]
        features = self.module(*arguments(flat, self._joins))
        return features.reshape(*batch, *features.shape[1:])

    def _measure(self, leaves: Sequence[Leaf]) -> int:
        """The number of features, for zeros as observations."""
        examples = [
            torch.zeros(2, *leaf.shape, dtype=getattr(torch, leaf.dtype.name)) for leaf in leaves
        ]
        try:
            with torch.no_grad():  # a lazy module gets its parameters by this
                _, features = self(*examples).shape
        except Exception as error:
            observed = {
                unravel_key(leaf.key): [*x.shape] for leaf, x in zip(leaves, examples, strict=True)
            }
            raise ConfigError(
                f"your network does not map observations {observed} to features [2, n]: "
                f"{str(error).partition(chr(10))[0] or type(error).__name__}"
            ) from error
        return int(features)


def made_by(given: Any, space: spaces.Space[Any], name: str) -> nn.Module:
    """A module, or what a function of the space makes; ``name`` is for messages."""
    made = given if isinstance(given, nn.Module) or not callable(given) else given(space)
    if not isinstance(made, nn.Module):
        raise ConfigError(
            f"{name} made {made!r:.80}, which is no torch.nn.Module: give a module, or a function "
            "that makes one from the space."
        )
    return made


def _check_layers(network: nn.Module) -> None:
    """Refuse layers that act differently than they learn, such as BatchNorm and Dropout."""
    for name, layer in network.named_modules():
        rate = 0.0
        if isinstance(layer, _DropoutNd):
            rate = layer.p
        elif isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
            rate = float(layer.dropout)
        tracks = isinstance(layer, _InstanceNorm) and layer.track_running_stats
        if rate or tracks or isinstance(layer, _BatchNorm):
            instead = f"dropout={rate:g}: set it to 0" if rate else "use nn.LayerNorm or GroupNorm"
            raise ConfigError(
                f"your network has a {type(layer).__name__} at {name!r}, which acts differently "
                f"than it learns: {instead}."
            )
