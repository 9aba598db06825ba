"""`RandomNetworkDistillation`: an intrinsic reward for novel observations."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from ..base.checks import check_count, check_fraction, check_rate
from ..base.tensordicts import mask_of
from ..errors import ConfigError
from ..networks import RunningNorm, mlp
from .averaging import LearnedReward
from .reward_scaler import running_returns


@dataclass(eq=False, repr=False)
class RandomNetworkDistillation(LearnedReward):
    """Adds an intrinsic reward for observations whose random features are not yet predictable.

    Burda, Edwards, Storkey and Klimov, 2018, Exploration by Random Network Distillation,
    arXiv:1810.12894. A predictor learns the features that a fixed random target network makes of
    the next observation. The intrinsic reward is the mean squared error, divided by the running
    standard deviation of its discounted return, which continues across episodes. Observations are
    normalized by running statistics and clipped to 5. The predictor trains on a batch after
    rewarding it.

    The reward becomes the environment's plus ``coeff`` times the intrinsic one, with one value
    function for both; the paper has a second one, without episodes. Register it before the
    advantages are estimated, or pass it to an algorithm as ``hooks=``. Logged episode returns are
    the environment's. It logs ``rnd/reward``, the mean intrinsic reward without ``coeff``, and the
    predictor's ``rnd/loss``.

    Args:
        features: Size of a normalized observation's last dimension.
        coeff: Factor of the intrinsic reward.
        gamma: Discount factor of the intrinsic return.
        target: Makes features of ``[n, features]``; by default two hidden layers of 64, 32
            features.
        predictor: Makes as many features; by default a network of the same kind.
        lr: Learning rate of the predictor.
        steps: Optimizer steps of the predictor per batch, each on a random part of it.
        key: Key of the observations.

    Examples:
        >>> hook = RandomNetworkDistillation(3, coeff=0.5)
    """

    saved_attributes = ("norm", "target", "predictor", "optimizer", "_intrinsic", "_returns")
    phase = "rnd"

    features: int
    _: KW_ONLY
    coeff: float = 1.0
    gamma: float = 0.99
    target: Any = None
    predictor: Any = None
    lr: float = 1e-3
    steps: int = 4
    key: NestedKey = ("next", "observation")

    def __post_init__(self) -> None:
        check_count("RandomNetworkDistillation: features", self.features)
        check_count("RandomNetworkDistillation: steps", self.steps)
        self.coeff = check_rate("RandomNetworkDistillation: coeff", self.coeff)
        self.gamma = check_fraction("RandomNetworkDistillation: gamma", self.gamma)
        self.norm = RunningNorm(self.features, clip=5.0)
        self.target = self.target or mlp(self.features, 32, (64, 64))
        self.predictor = self.predictor or mlp(self.features, 32, (64, 64))
        self.target.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.predictor.parameters(), lr=self.lr)
        self._intrinsic = RunningNorm(1)  # of the intrinsic return
        self._returns = torch.zeros(0, dtype=torch.float64)  # its value in each environment
        self._logged = {}
        self._networks = [self.norm, self._intrinsic, self.target, self.predictor]

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return ``batch``, ``[num_envs, time]``, with the sum of both rewards.

        Raises:
            ConfigError: If there are no vectors of so many features at ``key``.
        """
        device, reward = self.norm.mean.device, batch.get(("next", "reward"))
        found, mask = batch.get(self.key, None), mask_of(batch)
        if not isinstance(found, torch.Tensor) or found.shape[2:] != (self.features,):
            shapes = {key: list(x.shape[2:]) for key, x in batch["next"].items(True, True)}
            raise ConfigError(
                f"RandomNetworkDistillation(features={self.features}, key={self.key!r}): it needs "
                f"vectors of so many features, and each step is followed by {shapes}."
            )
        seen = found.to(device, torch.float32)
        mask = None if mask is None else mask.to(device)
        data = seen.flatten(0, -2) if mask is None else seen[mask]
        self._update(self.norm, data)
        with torch.no_grad():
            surprise = self._error(self.norm(seen))
        self._add_returns(surprise.double(), mask)
        intrinsic = (surprise / (self._intrinsic.var.sqrt() + 1e-8)).view(reward.shape)
        counted = intrinsic.flatten() if mask is None else intrinsic[mask].flatten()
        self._logged = {"rnd/reward": counted.mean(), "rnd/loss": self._learn(data)}
        return batch.copy().set(("next", "reward"), reward + self.coeff * intrinsic.to(reward))

    def _error(self, normalized: torch.Tensor) -> torch.Tensor:
        """Return the prediction error of each observation, ``[*batch]``."""
        with torch.no_grad():
            wanted = self.target(normalized)
        return (self.predictor(normalized) - wanted).square().mean(-1)

    def _update(self, norm: RunningNorm, values: torch.Tensor) -> None:
        norm.update(values)
        mean, var = self._average_moments(norm.mean, norm.var)
        norm.mean.copy_(mean)
        norm.var.copy_(var)
        norm.refresh()

    def _add_returns(self, reward: torch.Tensor, mask: torch.Tensor | None) -> None:
        """Update the statistics of the discounted returns of rewards, ``[num_envs, time]``."""
        before = self._returns if mask is None else self._returns[:0]
        seen, self._returns = running_returns(reward, before, self.gamma)
        values = seen.T
        values = values.flatten() if mask is None else values[mask]
        self._update(self._intrinsic, values.unsqueeze(-1))

    def _learn(self, seen: torch.Tensor) -> torch.Tensor:
        """Train the predictor; return its mean loss."""
        total = seen.new_zeros(())
        parts = torch.randperm(len(seen), device=seen.device).chunk(self.steps)
        for part in parts:
            loss = self._error(self.norm(seen[part])).mean()
            self._minimize(loss, self.predictor)
            total += loss.detach()
        return total / len(parts)
