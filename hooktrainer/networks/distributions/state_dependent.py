"""Normal distributions whose deviation follows the features of the state."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import ClassVar

import torch
from torch import Tensor, nn

from .continuous import Bound, Gaussian, SquashedGaussian


class StateDependentGaussian(Gaussian):
    """Normal with deviations that depend on the state; not bounded.

    The network gives features z of the state. The mean is linear in them; the noise is ``z @ W``
    for a matrix W of normal numbers with deviations of their own, so its variance is
    ``z² @ sigma²``. Drawn anew at every step, that is a normal distribution; held for some steps,
    the noise is a function of the state and exploration smooth, which is what
    `StateDependentExploration` does. Log-probabilities and the entropy are those of the former; the
    features do not learn by way of the deviation. Raffin, Kober and Stulp, 2021, Smooth Exploration
    for Robotic Reinforcement Learning, arXiv:2005.05719.

    Args:
        features: Size of what the network gives, its last dimension.
        shape: Shape of one action.
        log_std: Logarithm of the initial deviation of W.
    """

    largest_mean: ClassVar[float] = math.inf

    def __init__(self, features: int, shape: tuple[int, ...], log_std: float = 0.0) -> None:
        super().__init__(shape, features)
        self._follow(features, log_std)

    def _follow(self, features: int, log_std: float) -> None:
        self.parameter_features = features
        action_features = math.prod(self.shape)
        self.mean = nn.Linear(features, action_features)
        self.log_std = nn.Parameter(torch.full((features, action_features), float(log_std)))

    def loc_and_log_std(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-deviation, before squashing if there is any, ``[*batch, action features]``.

        Args:
            parameters: ``[*batch, features]``.
        """
        loc = self.mean(parameters)
        if self.largest_mean < math.inf:
            loc = loc.clamp(-self.largest_mean, self.largest_mean)
        variance = parameters.detach().square() @ (2 * self.log_std).exp()
        return loc, 0.5 * (variance + 1e-6).log()

    @torch.no_grad()
    def perturbed(
        self, parameters: Tensor, matrix: Tensor, keys: Collection[str]
    ) -> dict[str, Tensor]:
        """What `sample` returns for standard normal numbers in place of W's, without gradient.

        Args:
            parameters: ``[*batch, features]``.
            matrix: ``[*batch, features, action features]``.
            keys: Which entries are wanted in the end.
        """
        loc, log_std = self.loc_and_log_std(parameters)
        noise = (parameters.unsqueeze(-2) @ (matrix * self.log_std.exp())).squeeze(-2)
        return self._at(loc, log_std, noise * torch.exp(-log_std), keys)


class SquashedStateDependentGaussian(StateDependentGaussian, SquashedGaussian):
    """`StateDependentGaussian`, squashed into a box by tanh; its entropy is estimated.

    Args:
        features: Size of what the network gives, its last dimension.
        shape: Shape of one action.
        low: Least action, one number, or one for each feature, ``[*shape]``.
        high: Greatest action, likewise.
        log_std: Logarithm of the initial deviation of W.

    Raises:
        ConfigError: If ``low`` is not below ``high``, or one of them is infinite.
    """

    largest_mean = 2.0  # before squashing; beyond, tanh has no slope to learn by

    def __init__(
        self,
        features: int,
        shape: tuple[int, ...],
        low: Bound = -1.0,
        high: Bound = 1.0,
        log_std: float = -3.0,
    ) -> None:
        SquashedGaussian.__init__(self, shape, low, high)
        self._follow(features, log_std)
