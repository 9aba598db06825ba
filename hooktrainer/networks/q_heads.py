"""Layers at the end of Q-networks: dueling streams, noisy layers, embedded fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from .head import is_deterministic
from .layers import mlp


class NoisyLinear(nn.Module):
    """A linear layer whose weights have learned noise (Fortunato et al., 2018, arXiv:1706.10295).

    The noise is factorized Gaussian. Each call draws it, the same for the whole batch; where
    TorchRL's ``set_exploration_type`` requests other than random actions, there is none.

    Args:
        in_features: Size of the input's last dimension.
        out_features: Size of the output's last dimension.
        sigma: Initial deviation of the noise, times the root of ``in_features``.

    Attributes:
        weight: Means, ``[out_features, in_features]``; ``weight_sigma`` has their deviations.
        bias: Means, ``[out_features]``; ``bias_sigma`` has their deviations.
    """

    def __init__(self, in_features: int, out_features: int, sigma: float = 0.5) -> None:
        super().__init__()
        self.sigma = sigma
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.weight_sigma = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        self.bias_sigma = nn.Parameter(torch.empty(out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new means, and reset the deviations, as in the paper."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        for mean in (self.weight, self.bias):
            nn.init.uniform_(mean, -bound, bound)
        for deviation in (self.weight_sigma, self.bias_sigma):
            nn.init.constant_(deviation, self.sigma * bound)

    def forward(self, x: Tensor) -> Tensor:
        """``[*batch, out_features]``."""
        if is_deterministic():
            return functional.linear(x, self.weight, self.bias)
        rows, columns = (_noise(size, x) for size in self.weight.shape)
        weight = self.weight + self.weight_sigma * torch.outer(rows, columns)
        return functional.linear(x, weight, self.bias + self.bias_sigma * rows)


def _noise(size: int, like: Tensor) -> Tensor:
    drawn = torch.randn(size, dtype=like.dtype, device=like.device)
    return drawn.sign() * drawn.abs().sqrt()


class DuelingHead(nn.Module):
    """Q-values as a state's value and advantages (Wang et al., 2016, arXiv:1511.06581).

    The mean advantage is subtracted. With several atoms, each has a value and advantages.

    Args:
        value: Maps features to ``[*batch, atoms]``.
        advantage: Maps them to ``[*batch, actions * atoms]``.
        atoms: Numbers for each action.
    """

    def __init__(self, value: nn.Module, advantage: nn.Module, atoms: int = 1) -> None:
        super().__init__()
        self.value = value
        self.advantage = advantage
        self.atoms = atoms

    def forward(self, x: Tensor) -> Tensor:
        """``[*batch, actions * atoms]``."""
        advantage = self.advantage(x).unflatten(-1, (-1, self.atoms))
        centered = advantage - advantage.mean(-2, keepdim=True)
        return (self.value(x).unsqueeze(-2) + centered).flatten(-2)


def q_head(
    features: int,
    actions: int,
    num_cells: Sequence[int] = (),
    activation_class: Callable[[], nn.Module] = nn.ReLU,
    *,
    atoms: int = 1,
    dueling: bool = False,
    noisy: bool = False,
) -> nn.Module:
    """Layers from features to ``[*batch, actions * atoms]``.

    Args:
        features: Number of features.
        actions: Number of actions.
        num_cells: Width of each hidden layer, or of those of each stream.
        activation_class: Makes the activation after each.
        atoms: Numbers for each action.
        dueling: Whether they are a `DuelingHead`.
        noisy: Whether they are `NoisyLinear`.
    """
    linear = NoisyLinear if noisy else nn.Linear
    layers = mlp(features, actions * atoms, num_cells, activation_class, linear)
    if not dueling:
        return layers
    return DuelingHead(mlp(features, atoms, num_cells, activation_class, linear), layers, atoms)


class FractionEmbedding(nn.Module):
    """Features of an observation and a fraction (Dabney et al., 2018, arXiv:1806.06923).

    Features are multiplied by ``relu(linear(cos(pi * i * fraction)))``, ``i`` from 0.

    Args:
        features: Number of features.
        cosines: Number of cosines.
    """

    def __init__(self, features: int, cosines: int = 64) -> None:
        super().__init__()
        self.linear = nn.Linear(cosines, features)

    def forward(self, x: Tensor, fractions: Tensor) -> Tensor:
        """Map ``[*batch, features]`` and ``[*batch, n]`` to ``[*batch, n, features]``."""
        frequency = math.pi * torch.arange(self.linear.in_features, device=x.device)
        embedded = self.linear(torch.cos(fractions.unsqueeze(-1) * frequency)).relu()
        return x.unsqueeze(-2) * embedded
