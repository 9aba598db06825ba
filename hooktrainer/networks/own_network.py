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
        check_layers(module)
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
        observed = ", ".join(
            f"{unravel_key(leaf.key)!r} [batch{''.join(f', {size}' for size in leaf.shape)}] "
            f"{leaf.dtype.name}"
            for leaf in leaves
        )
        try:
            with torch.no_grad():  # a lazy module gets its parameters by this
                features = self(*examples)
        except Exception as error:
            raise ConfigError(
                f"your network does not fit the observations {observed}: {_first_line(error)}"
            ) from error
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
            found = list(features.shape) if isinstance(features, Tensor) else features
            raise ConfigError(
                f"your network returns {found!r:.80} for {observed} of batch 2; it has to "
                "return features [batch, n]."
            )
        return int(features.shape[-1])


def made_by(given: Any, space: spaces.Space[Any], name: str) -> nn.Module:
    """Call a function, or a class, with a space to make a network; ``name`` is for messages."""
    given_name = getattr(given, "__qualname__", None) or f"{given!r:.80}"
    if not callable(given):
        raise ConfigError(
            f"{name}={given_name} is no network: give a module, a function that makes one from the "
            "space, or a name."
        )
    try:
        made = given(space)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{name}={given_name} was called with the space and failed: {_first_line(error)}: give "
            "a module, or a function of the space, such as `lambda space: MyNetwork()`."
        ) from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{name}={given_name} made {made!r:.80}, which is no torch.nn.Module.")
    return made


def check_layers(network: nn.Module) -> None:
    """Refuse layers that act differently than they learn, such as BatchNorm and Dropout."""
    for name, layer in network.named_modules():
        prefix = f"your network has a {type(layer).__name__}" + (f" at {name!r}" if name else "")
        tracks = isinstance(layer, _InstanceNorm) and layer.track_running_stats
        if isinstance(layer, _BatchNorm) or tracks:
            raise ConfigError(
                f"{prefix}: its statistics would change while acting, and an action depend on what "
                "the other environments show: use nn.LayerNorm or nn.GroupNorm instead."
            )
        rate = 0.0
        if isinstance(layer, _DropoutNd):
            rate = layer.p
        elif isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
            rate = float(layer.dropout)
        if rate:
            raise ConfigError(
                f"{prefix} that drops {rate:g} of the features, others when learning than when "
                "acting: set it to 0; weight_decay and nn.LayerNorm regularize, too."
            )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__
