"""Policies over continuous actions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from tensordict import NestedKey, TensorDictBase
from torch import nn
from torch.nn.functional import softplus

from .box import Box
from .exploration import is_deterministic
from .policy import Policy

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class DiagonalGaussianPolicy(Policy):
    """A normal distribution whose mean depends on the observation and whose deviation does not.

    The usual policy of PPO. Writes ``"action"`` ``[*batch, features]``, ``"action_log_prob"``
    ``[*batch]`` and, if asked, ``"loc"`` and ``"scale"``, shaped as the action. Actions are not
    bounded; clip them in the environment.

    Args:
        network: Maps an observation to the mean, ``[*batch, features]``.
        action_features: Size of the action's last dimension.
        log_std: Logarithm of the initial standard deviation.
        in_keys: Entries the network reads.
        out_keys: Entries the policy writes.
    """

    entries = ("action", "action_log_prob", "loc", "scale")

    def __init__(
        self,
        network: nn.Module,
        action_features: int,
        log_std: float = 0.0,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[str] = ("action", "action_log_prob"),
    ) -> None:
        super().__init__(network, in_keys, out_keys)
        self.action_features = action_features
        self.log_std = nn.Parameter(torch.full((action_features,), log_std))

    def log_prob_and_entropy(
        self, inputs: Sequence[torch.Tensor], action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The log-probability of ``action`` and the entropy, ``[*batch]`` each, with gradient."""
        loc = self.evaluate(*inputs)
        noise = (action - loc) * torch.exp(-self.log_std)
        entropy = (self.log_std + (0.5 + _HALF_LOG_2PI)).sum()
        return _normal_log_prob(noise, self.log_std), entropy.expand(loc.shape[:-1])

    def get_dist(self, tensordict: TensorDictBase) -> torch.distributions.Distribution:
        """The normal distribution, ``[*batch]``, with gradient."""
        loc = self.evaluate(*self.inputs(tensordict))
        normal = torch.distributions.Normal(loc, self.log_std.exp(), validate_args=False)
        return torch.distributions.Independent(normal, 1, validate_args=False)

    def _decide(self, loc: torch.Tensor) -> dict[str, torch.Tensor]:
        noise = torch.zeros_like(loc) if is_deterministic() else torch.randn_like(loc)
        log_std = self.log_std.detach()
        scale = log_std.exp()
        out = {"action": torch.addcmul(loc, scale, noise)}
        if "action_log_prob" in self.out_keys:
            out["action_log_prob"] = _normal_log_prob(noise, log_std)
        if "loc" in self.out_keys:
            out["loc"] = loc
        if "scale" in self.out_keys:
            out["scale"] = scale.expand_as(loc)
        return out


class TanhGaussianPolicy(Policy):
    """A normal distribution squashed into a box by tanh; the policy of SAC.

    Writes ``"action"`` ``[*batch, features]`` and, if asked, ``"action_log_prob"`` ``[*batch]``.
    Mean and log-deviation both depend on the observation; the latter is clipped to ``[-20, 2]`` as
    in the paper's code (Haarnoja et al., 2018, Soft Actor-Critic).

    Args:
        network: Maps an observation to mean and log-deviation, ``[*batch, 2 * features]``.
        low: Least action, one number or one for each feature.
        high: Greatest action, likewise.
        action_features: Size of the action's last dimension.
        in_keys: Entries the network reads.
        out_keys: Entries the policy writes.

    Attributes:
        box: The bounds of the action.

    Raises:
        ConfigError: If ``low`` is not below ``high``, or one of them is infinite.
    """

    def __init__(
        self,
        network: nn.Module,
        action_features: int,
        low: torch.Tensor | Sequence[float] | float = -1.0,
        high: torch.Tensor | Sequence[float] | float = 1.0,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[str] = ("action",),
    ) -> None:
        super().__init__(network, in_keys, out_keys)
        self.action_features = action_features
        self.box = Box(action_features, low, high)
        self._log_volume = float(self.box.half_width.log().sum())

    def rsample(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A random action and its log-probability, both differentiable in the parameters.

        Args:
            *inputs: The entries ``in_keys``.

        Returns:
            Shapes ``[*batch, features]`` and ``[*batch]``.
        """
        loc, log_std = self._split(self.evaluate(*inputs))
        return self._squash(loc, log_std, torch.randn_like(loc))

    def get_dist(self, tensordict: TensorDictBase) -> torch.distributions.Distribution:
        """TorchRL's ``TanhNormal``, ``[*batch]``, with gradient."""
        from torchrl.modules import TanhNormal

        loc, log_std = self._split(self.evaluate(*self.inputs(tensordict)))
        return TanhNormal(loc, log_std.exp(), low=self.box.low, high=self.box.high, event_dims=1)

    def _decide(self, parameters: torch.Tensor) -> dict[str, torch.Tensor]:
        loc, log_std = self._split(parameters)
        noise = torch.zeros_like(loc) if is_deterministic() else torch.randn_like(loc)
        if "action_log_prob" not in self.out_keys:
            return {"action": self.box(torch.addcmul(loc, log_std.exp(), noise))}
        action, log_prob = self._squash(loc, log_std, noise)
        return {"action": action, "action_log_prob": log_prob}

    def _squash(
        self, loc: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The action for some standard normal noise, and its log-probability."""
        unbounded = torch.addcmul(loc, log_std.exp(), noise)
        # log d tanh(u)/du = log(1 - tanh(u)²), in the form that is exact where tanh saturates.
        log_slope = 2.0 * (math.log(2.0) - unbounded - softplus(-2.0 * unbounded))
        log_prob = _normal_log_prob(noise, log_std) - log_slope.sum(-1) - self._log_volume
        return self.box(unbounded), log_prob

    @staticmethod
    def _split(parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loc, log_std = parameters.chunk(2, -1)
        return loc, log_std.clamp(-20.0, 2.0)


def _normal_log_prob(noise: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Log-density of ``loc + exp(log_std) * noise``, summed over the last dimension."""
    return -(0.5 * noise.square() + (log_std + _HALF_LOG_2PI)).sum(-1)
