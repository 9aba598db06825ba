"""`Ensemble`: several multi-layer perceptrons of one input, computed as one batched module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from .batch_renorm import BatchRenorm
from .layers import AgentLinear, mlp

Norm = Callable[[int, int], nn.Module]
"""Makes a layer from the number of networks and of features."""


class Ensemble(nn.Module):
    """Several multi-layer perceptrons of one input, with separate parameters.

    Args:
        networks: Number of networks.
        in_features: Size of the input's last dimension.
        out_features: Outputs of each network.
        num_cells: As for `mlp`.
        activation_class: As for `mlp`.
        linear: Makes a layer from the number of networks and the sizes of its input and output; it
            maps ``[networks, batch, in_features]`` to ``[networks, batch, out_features]``.
        norm: Makes what follows the linear map of a hidden layer.
    """

    def __init__(
        self,
        networks: int,
        in_features: int,
        out_features: int,
        num_cells: Sequence[int] = (64, 64),
        activation_class: Callable[[], nn.Module] = nn.Tanh,
        *,
        linear: Callable[[int, int, int], nn.Module] = AgentLinear,
        norm: Norm | None = None,
    ) -> None:
        super().__init__()
        self.networks = networks
        self.layers = mlp(
            in_features,
            out_features,
            num_cells,
            activation_class,
            partial(linear, networks),
            None if norm is None else partial(norm, networks),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[*batch, in_features]`` to ``[*batch, networks * out_features]``."""
        rows = x.reshape(-1, x.shape[-1])
        out = self.layers(rows.expand(self.networks, *rows.shape))
        return out.transpose(0, 1).reshape(*x.shape[:-1], -1)


class EnsembleLayerNorm(nn.Module):
    """Layer normalization of ``[networks, batch, features]``, with separate parameters."""

    def __init__(self, networks: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(networks, 1, features))
        self.bias = nn.Parameter(torch.zeros(networks, 1, features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        return torch.addcmul(self.bias, layer_norm(x, x.shape[-1:]), self.weight)


def dropout_and_layer_norm(dropout: float) -> Norm:
    """What follows a hidden linear map in DroQ (Hiraoka et al., 2022, arXiv:2110.02034)."""

    def make(networks: int, features: int) -> nn.Module:
        return nn.Sequential(nn.Dropout(dropout), EnsembleLayerNorm(networks, features))

    return make


def renormalized(networks: int, in_features: int, out_features: int) -> nn.Module:
    """A linear layer of `Ensemble` after `BatchRenorm` (Bhatt et al., 2024, arXiv:1902.05605)."""
    norm = BatchRenorm(in_features, (networks,))
    return nn.Sequential(norm, AgentLinear(networks, in_features, out_features))


def renormalized_linear(in_features: int, out_features: int) -> nn.Module:
    """The same of a single network, for `mlp`."""
    return nn.Sequential(BatchRenorm(in_features), nn.Linear(in_features, out_features))
