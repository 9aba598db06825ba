"""Distributions over continuous actions: normal, squashed, Beta, state-dependent."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ..deterministic import Box
from .discrete import ActionDistribution

Bound: TypeAlias = Tensor | Sequence[float] | float
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Gaussian(ActionDistribution):
    """Base class of unbounded normal distributions, independent in every feature."""

    entries: tuple[str, ...] = ("loc", "scale")
    kl_keys: tuple[str, ...] = ("loc", "scale")

    @abstractmethod
    def loc_and_log_std(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``[*batch, features]`` and log-deviation, which broadcasts to it, with gradient."""

    def sample(
        self, parameters: Tensor, keys: Collection[str], deterministic: bool
    ) -> dict[str, Tensor]:
        loc, log_std = self.loc_and_log_std(parameters)
        noise = torch.zeros_like(loc) if deterministic else torch.empty_like(loc).normal_()
        return self._at(loc.detach(), log_std.detach(), noise, keys)

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        loc, log_std = self.loc_and_log_std(parameters)
        noise = (action.reshape(loc.shape) - loc) * torch.exp(-log_std)
        entropy = (log_std + (0.5 + _HALF_LOG_2PI)).sum(-1)
        return _normal_log_prob(noise, log_std), entropy.expand(loc.shape[:-1])

    def mode(self, parameters: Tensor) -> Tensor:
        return self._shaped(self.loc_and_log_std(parameters)[0])

    def kl_from(self, old: Mapping[str, Tensor], parameters: Tensor) -> Tensor:
        loc, log_std = self.loc_and_log_std(parameters)
        precision = torch.exp(-log_std)
        width = old["scale"].reshape(loc.shape) * precision
        away = (old["loc"].reshape(loc.shape) - loc) * precision
        return (0.5 * (width.square() + away.square() - 1) - width.log()).sum(-1)

    def as_torch(self, parameters: Tensor) -> torch.distributions.Distribution:
        loc, log_std = self.loc_and_log_std(parameters)
        scale = self._shaped(log_std.exp().expand_as(loc))
        normal = torch.distributions.Normal(self._shaped(loc), scale, validate_args=False)
        return torch.distributions.Independent(normal, len(self.shape), validate_args=False)

    def _at(
        self, loc: Tensor, log_std: Tensor, noise: Tensor, keys: Collection[str]
    ) -> dict[str, Tensor]:
        """The result of `sample` for this standard normal noise, without gradient."""
        scale = log_std.exp()
        out = {"action": self._shaped(torch.addcmul(loc, scale, noise))}
        if "action_log_prob" in keys:
            out["action_log_prob"] = _normal_log_prob(noise, log_std)
        if "loc" in keys:
            out["loc"] = self._shaped(loc)
        if "scale" in keys:
            out["scale"] = self._shaped(scale.expand_as(loc))
        return out


class DiagonalGaussian(Gaussian):
    """An unbounded normal distribution with the network's mean and a learned constant deviation.

    Args:
        shape: Shape of one action.
        log_std: Logarithm of the initial standard deviation.
    """

    def __init__(self, shape: tuple[int, ...], log_std: float = 0.0) -> None:
        features = math.prod(shape)
        super().__init__(shape, features)
        self.log_std = nn.Parameter(torch.full((features,), float(log_std)))

    def loc_and_log_std(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``[*batch, features]`` and log-deviation ``[features]``."""
        return parameters, self.log_std


class SquashedGaussian(Gaussian):
    """A normal distribution squashed into a box by tanh.

    The network returns mean and log-deviation; the latter is clipped to ``[-20, 2]`` as in the code
    of Haarnoja et al., 2018, Soft Actor-Critic. The entropy is estimated from a sample.

    Args:
        shape: Shape of one action.
        low: Least action, one number, or ``[*shape]``.
        high: Greatest action, likewise.
    """

    entries = ()
    kl_keys = ()

    def __init__(self, shape: tuple[int, ...], low: Bound = -1.0, high: Bound = 1.0) -> None:
        features = math.prod(shape)
        super().__init__(shape, 2 * features)
        self.box = Box(shape, low, high)
        self._log_volume = float(self.box.half_width.log().sum())

    def rsample(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        loc, log_std = self.loc_and_log_std(parameters)
        noise = torch.empty_like(loc).normal_()
        unbounded = torch.addcmul(loc, log_std.exp(), noise)
        return self.box(unbounded), self._log_prob(noise, log_std, unbounded)

    def mode(self, parameters: Tensor) -> Tensor:
        return self.box(self.loc_and_log_std(parameters)[0])

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        loc, log_std = self.loc_and_log_std(parameters)
        return self._log_prob_of(action, loc, log_std), -self.rsample(parameters)[1]

    def as_torch(self, parameters: Tensor) -> torch.distributions.Distribution:
        from torchrl.modules import TanhNormal

        loc, log_std = self.loc_and_log_std(parameters)
        low, high = self.box.low.flatten(), self.box.high.flatten()
        return TanhNormal(loc, log_std.exp(), low=low, high=high, event_dims=1)

    def loc_and_log_std(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-deviation before squashing, ``[*batch, features]`` each."""
        loc, log_std = parameters.chunk(2, -1)
        return loc, log_std.clamp(-20.0, 2.0)

    def _at(
        self, loc: Tensor, log_std: Tensor, noise: Tensor, keys: Collection[str]
    ) -> dict[str, Tensor]:
        action = self.box(torch.addcmul(loc, log_std.exp(), noise))
        if "action_log_prob" not in keys:
            return {"action": action}
        # Of the action, as a loss will see it, which where tanh saturates is not that of the noise.
        return {"action": action, "action_log_prob": self._log_prob_of(action, loc, log_std)}

    def _log_prob_of(self, action: Tensor, loc: Tensor, log_std: Tensor) -> Tensor:
        unbounded = self.box.invert(action)
        return self._log_prob((unbounded - loc) * torch.exp(-log_std), log_std, unbounded)

    def _log_prob(self, noise: Tensor, log_std: Tensor, unbounded: Tensor) -> Tensor:
        """The log-probability of a squashed point, with its standard normal noise."""
        # log d tanh(u)/du = log(1 - tanh(u)²), in the form that is exact where tanh saturates.
        log_slope = 2.0 * (math.log(2.0) - unbounded - softplus(-2.0 * unbounded))
        return _normal_log_prob(noise, log_std) - log_slope.sum(-1) - self._log_volume


class Beta(ActionDistribution):
    """A Beta distribution over a box, with both parameters above 1, so that it has one mode.

    Chou, Maturana and Scherer, 2017, Improving Stochastic Policy Gradients in Continuous Control
    with Deep Reinforcement Learning using the Beta Distribution. Arguments as for
    `SquashedGaussian`.
    """

    def __init__(self, shape: tuple[int, ...], low: Bound = -1.0, high: Bound = 1.0) -> None:
        features = math.prod(shape)
        super().__init__(shape, 2 * features)
        self.box = Box(shape, low, high)
        self._log_volume = float((2 * self.box.half_width).log().sum())

    def sample(
        self, parameters: Tensor, keys: Collection[str], deterministic: bool
    ) -> dict[str, Tensor]:
        alpha, beta = self._concentrations(parameters)
        if deterministic:
            unit = _mode_of_beta(alpha, beta)
        else:
            unit = torch.distributions.Beta(alpha, beta, validate_args=False).sample()
        out = {"action": self._within(unit)}
        if "action_log_prob" in keys:
            out["action_log_prob"] = self._log_prob(alpha, beta, unit)
        return out

    def mode(self, parameters: Tensor) -> Tensor:
        return self._within(_mode_of_beta(*self._concentrations(parameters)))

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        alpha, beta = self._concentrations(parameters)
        unit = self.box.flat((action - self.box.low) / (self.box.high - self.box.low))
        over_unit: Any = torch.distributions.Beta(alpha, beta, validate_args=False)
        entropy = over_unit.entropy().sum(-1)
        return self._log_prob(alpha, beta, unit), entropy + self._log_volume

    def as_torch(self, parameters: Tensor) -> torch.distributions.Distribution:
        unit = torch.distributions.Beta(*self._concentrations(parameters), validate_args=False)
        low, high = self.box.low.flatten(), self.box.high.flatten()
        scale = torch.distributions.AffineTransform(low, high - low)
        moved = torch.distributions.TransformedDistribution(unit, [scale], validate_args=False)
        return torch.distributions.Independent(moved, 1, validate_args=False)

    def _within(self, unit: Tensor) -> Tensor:
        low, high = self.box.low, self.box.high
        return torch.lerp(low, high, self.box.shaped(unit).to(low.dtype))  # of half precision

    def _log_prob(self, alpha: Tensor, beta: Tensor, unit: Tensor) -> Tensor:
        # At the very edge of the box, where rounding may put a sample, the density is 0.
        inside = unit.clamp(1e-6, 1 - 1e-6)
        over_unit: Any = torch.distributions.Beta(alpha, beta, validate_args=False)
        return over_unit.log_prob(inside).sum(-1) - self._log_volume

    @staticmethod
    def _concentrations(parameters: Tensor) -> tuple[Tensor, Tensor]:
        alpha, beta = (1 + softplus(parameters)).chunk(2, -1)
        return alpha, beta


def _normal_log_prob(noise: Tensor, log_std: Tensor) -> Tensor:
    """Log-density of ``loc + exp(log_std) * noise``, summed over the last dimension."""
    return -(0.5 * noise.square() + (log_std + _HALF_LOG_2PI)).sum(-1)


def _mode_of_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    return (alpha - 1) / (alpha + beta - 2)


class StateDependentGaussian(Gaussian):
    """An unbounded normal distribution whose deviation depends on the state.

    The network returns features z of the state. The mean is linear in z. The noise is ``z @ W`` for
    a matrix W of normal numbers with learned deviations sigma, so its variance is ``z² @ sigma²``.
    If W is redrawn at every step the distribution is normal, and log-probabilities and the entropy
    are of this distribution; `StateDependentExploration` keeps W for some steps. The features get
    no gradient through the deviation. Raffin, Kober and Stulp, 2021, Smooth Exploration for Robotic
    Reinforcement Learning, arXiv:2005.05719.

    Args:
        features: Size of the network's output.
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
        """Mean and log-deviation ``[*batch, action features]`` before squashing."""
        loc = self.mean(parameters)
        if self.largest_mean < math.inf:
            loc = loc.clamp(-self.largest_mean, self.largest_mean)
        variance = parameters.detach().square() @ (2 * self.log_std).exp()
        return loc, 0.5 * (variance + 1e-6).log()

    @torch.no_grad()
    def perturbed(
        self, parameters: Tensor, matrix: Tensor, keys: Collection[str]
    ) -> dict[str, Tensor]:
        """The result of `sample` for normal numbers ``[*batch, features, action features]``."""
        loc, log_std = self.loc_and_log_std(parameters)
        noise = (parameters.unsqueeze(-2) @ (matrix * self.log_std.exp())).squeeze(-2)
        return self._at(loc, log_std, noise * torch.exp(-log_std), keys)


class SquashedStateDependentGaussian(StateDependentGaussian, SquashedGaussian):
    """`StateDependentGaussian`, squashed into a box by tanh; its entropy is estimated.

    Arguments as for `StateDependentGaussian` and `SquashedGaussian`.
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
