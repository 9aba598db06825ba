"""A learned model of an environment: an ensemble of probabilistic networks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from .layers import RunningNorm


class DynamicsEnsemble(nn.Module):
    """Predicts the next observation and the reward, with independent networks.

    Each network maps an observation and an action to a normal distribution over the change of the
    observation and the reward, with a variance for every feature (Chua et al., 2018,
    arXiv:1805.12114, probabilistic ensembles). Inputs and outputs are normalized by the statistics
    of `update`.

    Args:
        observation_features: Size of an observation.
        action_features: Size of an action.
        num_models: Number of networks.
        num_cells: Widths of the hidden layers.

    Attributes:
        num_models: Number of networks.
    """

    def __init__(
        self,
        observation_features: int,
        action_features: int,
        num_models: int = 5,
        num_cells: Sequence[int] = (128, 128),
    ) -> None:
        super().__init__()
        self.num_models = num_models
        self._features = observation_features + 1  # with the reward
        sizes = [observation_features + action_features, *num_cells, 2 * self._features]
        pairs = list(itertools.pairwise(sizes))
        self.weights = nn.ParameterList(
            nn.init.trunc_normal_(torch.empty(num_models, n, m), std=0.5 / n**0.5) for n, m in pairs
        )
        self.biases = nn.ParameterList(torch.zeros(num_models, 1, m) for _, m in pairs)
        self.least_log_var = nn.Parameter(torch.full((self._features,), -10.0))
        self.greatest_log_var = nn.Parameter(torch.full((self._features,), 0.5))
        self.inputs = RunningNorm(sizes[0])
        self.outputs = RunningNorm(self._features)

    def update(
        self, observation: Tensor, action: Tensor, next_observation: Tensor, reward: Tensor
    ) -> None:
        """Add transitions ``[*batch, features]`` to the statistics."""
        self.inputs.update(torch.cat([observation, action], -1))
        self.outputs.update(torch.cat([next_observation - observation, reward], -1))

    def forward(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and log-variance of the normalized change and reward.

        Both are ``[num_models, batch, features + 1]``, for inputs ``[batch, features]``, or
        different ones for each network, ``[num_models, batch, features]``.
        """
        x = self.inputs(torch.cat([observation, action], -1))
        x = x.expand(self.num_models, *x.shape[-2:])
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = silu(torch.baddbmm(bias, x, weight))
        mean, log_var = torch.baddbmm(self.biases[-1], x, self.weights[-1]).chunk(2, -1)
        # Bounds that are learned, and softly kept, so that no variance runs away (appendix A.1).
        log_var = self.greatest_log_var - softplus(self.greatest_log_var - log_var)
        return mean, self.least_log_var + softplus(log_var - self.least_log_var)

    def loss(
        self, observation: Tensor, action: Tensor, next_observation: Tensor, reward: Tensor
    ) -> Tensor:
        """The negative log-likelihood, up to a constant, of ``[num_models, batch, ...]``."""
        mean, log_var = self(observation, action)
        target = self.outputs(torch.cat([next_observation - observation, reward], -1))
        errors = (mean - target).square() * torch.exp(-log_var) + log_var
        bounds = self.greatest_log_var.sum() - self.least_log_var.sum()
        return errors.mean((1, 2)).sum() + 0.01 * bounds

    @torch.no_grad()
    def sample(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Sample next observations ``[batch, features]`` and rewards ``[batch, 1]``.

        Each row uses a random network.
        """
        mean, log_var = self(observation, action)
        rows = torch.arange(len(observation), device=mean.device)
        chosen = torch.randint(self.num_models, rows.shape, device=mean.device)
        mean, std = mean[chosen, rows], (0.5 * log_var[chosen, rows]).exp()
        change = self.outputs.invert(torch.addcmul(mean, std, torch.randn_like(mean)))
        return observation + change[:, :-1], change[:, -1:]
