"""A squashed normal distribution whose deviation follows the features of the state."""

from __future__ import annotations

import math

import torch
from torch import nn

from .continuous import Bound, SquashedGaussian

_LARGEST_MEAN = 2.0  # before squashing; beyond, tanh has no slope to learn by


class StateDependentGaussian(SquashedGaussian):
    """Normal with deviations that depend on the state, squashed into a box by tanh.

    The network gives features z of the state. The mean is linear in them; the noise is ``z @ W``
    for a matrix W of normal numbers with deviations of their own, so its variance is
    ``z² @ sigma²``. Drawn anew at every step, that is a normal distribution; held for some steps,
    the noise is a function of the state and exploration smooth, which is what
    `StateDependentExploration` does. Raffin, Kober and Stulp, 2021, Smooth Exploration for Robotic
    Reinforcement Learning, arXiv:2005.05719.

    Args:
        features: Size of what the network gives, its last dimension.
        shape: Shape of one action.
        low: Least action, one number, or one for each feature, ``[*shape]``.
        high: Greatest action, likewise.
        log_std: Logarithm of the initial deviation of W.

    Raises:
        ConfigError: If ``low`` is not below ``high``, or one of them is infinite.
    """

    def __init__(
        self,
        features: int,
        shape: tuple[int, ...],
        low: Bound = -1.0,
        high: Bound = 1.0,
        log_std: float = -3.0,
    ) -> None:
        super().__init__(shape, low, high)
        self.parameter_features = features
        action_features = math.prod(shape)
        self.mean = nn.Linear(features, action_features)
        self.log_std = nn.Parameter(torch.full((features, action_features), log_std))

    def loc_and_log_std(self, parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log-deviation before squashing, ``[*batch, action features]`` each."""
        variance = parameters.detach().square() @ (2 * self.log_std).exp()
        return self.loc(parameters), 0.5 * (variance + 1e-6).log()

    def loc(self, parameters: torch.Tensor) -> torch.Tensor:
        """The mean before squashing, ``[*batch, action features]``."""
        return self.mean(parameters).clamp(-_LARGEST_MEAN, _LARGEST_MEAN)

    def perturbed(self, parameters: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        """The action ``[*batch, *shape]`` for standard normal numbers in place of W's.

        Args:
            parameters: ``[*batch, features]``.
            matrix: ``[*batch, features, action features]``.
        """
        noise = (parameters.unsqueeze(-2) @ (matrix * self.log_std.exp())).squeeze(-2)
        return self.box(self.loc(parameters) + noise)
