"""A deterministic policy over continuous actions, and Gaussian exploration noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor, nn

from ..errors import ConfigError
from .head import Actor, Head, is_deterministic
from .memory import primer


class DeterministicPolicy(Head):
    """One action for each observation, squashed into a box by tanh; the policy of DDPG and TD3.

    It writes ``"action"`` ``[*batch, *shape]`` with gradient, for TorchRL's losses.
    `AdditiveGaussian` adds exploration.

    Args:
        network: Maps the inputs, concatenated if it takes one tensor, to ``[*batch, features]``.
        action_features: Size of an action, or its shape.
        low: Least action, one number or one for each feature.
        high: Greatest action, likewise.
        in_keys: Entries the network reads.
        trunk: As for `Policy`.

    Attributes:
        box: The bounds of the action.
    """

    def __init__(
        self,
        network: nn.Module,
        action_features: int | tuple[int, ...],
        low: Tensor | Sequence[float] | float = -1.0,
        high: Tensor | Sequence[float] | float = 1.0,
        in_keys: Sequence[NestedKey] = ("observation",),
        trunk: nn.Module | None = None,
    ) -> None:
        super().__init__(network, in_keys, ["action"], trunk)
        self.box = Box(action_features, low, high)
        self.action_features = self.box.low.numel()

    mode = Head.evaluate  # as of a `Policy`: the action, with gradient

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``"action"``, with gradient, and return ``tensordict``."""
        return tensordict.set("action", self.read(tensordict))

    def act(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """The action and the next hidden states, without gradient, as fast as possible."""
        action, states = self.remember(*inputs)
        return {"action": action, **states}

    def _result(self, out: Tensor, mask: Tensor | None) -> Tensor:
        return self.box(out)


class AdditiveGaussian(Actor):
    """Adds Gaussian noise to the actions of a deterministic policy, and clips them to its box.

    The noise is independent between steps. TorchRL's ``set_exploration_type`` switches it off,
    except with ``RANDOM``.

    Args:
        policy: The policy.
        sigma: The deviation in halves of the box: 0.1 is a tenth of the way from the middle to the
            edge. A `hooktrainer.Schedule` can change it.

    Raises:
        ConfigError: If the deviation is negative.
    """

    not_in_graphs: ClassVar = frozenset({"_sigma"})
    _sigma: float
    _scale: Tensor

    def __init__(self, policy: DeterministicPolicy, sigma: float = 0.1) -> None:
        if sigma < 0:
            raise ConfigError(f"AdditiveGaussian: sigma={sigma} must not be negative.")
        super().__init__()
        self.policy = policy
        # A compiled rollout reads this tensor; a Python number would be a constant in its graph.
        like = policy.box.low
        self.register_buffer("_scale", torch.zeros((), device=like.device), persistent=False)
        self.sigma = sigma
        self.in_keys = policy.in_keys
        self.out_keys = policy.out_keys

    @property
    def sigma(self) -> float:
        """The current deviation."""
        return self._sigma

    @sigma.setter
    def sigma(self, value: float) -> None:
        self.__dict__["_sigma"] = value
        self._scale.fill_(value)

    def act(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """The action ``[*batch, features]``, without gradient, as fast as possible."""
        out = self.policy.act(*inputs)
        if not is_deterministic():
            action = out["action"]
            sigma = self._scale if torch.compiler.is_compiling() else self._sigma
            out["action"] = self.policy.box.perturb(action, sigma * torch.randn_like(action))
        return out

    def sample(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """The part of `act` needed at every step, for compiled rollouts: all of it."""
        return self.act(*inputs)

    def get_extra_state(self) -> dict[str, float]:
        return {"sigma": self.sigma}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.sigma = state["sigma"]


_SIGMA: Final = ("exploration", "sigma")
_NONE: Final = -1.0  # the deviation before it is drawn, as an episode begins


class PerEnvGaussian(AdditiveGaussian):
    """`AdditiveGaussian` with another deviation in each environment.

    Where an episode begins, it is drawn uniformly from ``sigma`` to ``sigma_max`` (Seo et al.,
    2025, arXiv:2505.22642). It is a hidden state, which collectors carry and checkpoints hold.

    Args:
        policy: The policy.
        sigma: The least deviation, in halves of the box.
        sigma_max: The greatest.

    Raises:
        ConfigError: If the least is negative, or above the greatest.
    """

    def __init__(self, policy: DeterministicPolicy, sigma: float, sigma_max: float) -> None:
        super().__init__(policy, sigma)
        if sigma_max < sigma:
            raise ConfigError(f"PerEnvGaussian: {sigma=} must not be above {sigma_max=}.")
        self.sigma_max = sigma_max
        self.in_keys = [*policy.in_keys, _SIGMA]
        self.out_keys = [*policy.out_keys, ("next", *_SIGMA)]

    def act(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """The action, and the deviations ``[num_envs, 1]``, which are the last of the inputs."""
        *seen, sigma = inputs
        out = self.policy.act(*seen)
        if not is_deterministic():
            # Drawn whether one is due or not: how many numbers are drawn depends on nothing.
            drawn = self.sigma + (self.sigma_max - self.sigma) * torch.rand_like(sigma)
            sigma = torch.where(sigma == _NONE, drawn, sigma)
            noise = torch.randn_like(out["action"]).flatten(1) * sigma
            action = out["action"]
            out["action"] = self.policy.box.perturb(action, noise.view(action.shape))
        return {**out, ("next", *_SIGMA): sigma}

    def make_tensordict_primer(self) -> Any:
        """TorchRL's primer of the initial hidden state."""
        return primer({_SIGMA: (torch.zeros(1), _NONE)})


# -- A box of actions: tanh into it, and noise that stays in it.


class Box(nn.Module):
    """Maps real numbers into a box by tanh: the last layer of a policy with a bounded mean.

    Args:
        shape: Shape of an action, or the number of its features.
        low: Lower bound, one number or one for each feature; also an attribute ``[*shape]``.
        high: Upper bound, likewise.

    Attributes:
        half_width: Half their difference, ``[*shape]``.

    Raises:
        ConfigError: If the bounds are infinite, or ``low`` is not below ``high``.
    """

    low: Tensor
    high: Tensor
    half_width: Tensor
    _center: Tensor

    def __init__(
        self,
        shape: int | tuple[int, ...],
        low: Tensor | Sequence[float] | float = -1.0,
        high: Tensor | Sequence[float] | float = 1.0,
    ) -> None:
        super().__init__()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        low_, high_ = (
            torch.as_tensor(bound, dtype=torch.get_default_dtype()).expand(self.shape)
            for bound in (low, high)
        )
        if not ((low_ < high_) & low_.isfinite() & high_.isfinite()).all():
            raise ConfigError(
                f"the bounds of the action, low={low} and high={high}, must be finite, low below "
                "high."
            )
        half_width = (high_ - low_) / 2
        # Buffers, so that they move with the module; not state, as they come from the environment.
        self.register_buffer("low", low_.clone(), persistent=False)
        self.register_buffer("high", high_.clone(), persistent=False)
        self.register_buffer("half_width", half_width, persistent=False)
        self.register_buffer("_center", low_ + half_width, persistent=False)

    def forward(self, unbounded: Tensor) -> Tensor:
        """Map ``[*batch, features]`` to points ``[*batch, *shape]`` of the box."""
        return torch.addcmul(self._center, self.half_width, self.shaped(unbounded.tanh()))

    def shaped(self, flat: Tensor) -> Tensor:
        """Reshape ``[*batch, features]`` to ``[*batch, *shape]``."""
        if len(self.shape) == 1:
            return flat
        return flat.reshape(*flat.shape[:-1], *self.shape)

    def flat(self, action: Tensor) -> Tensor:
        """Reshape ``[*batch, *shape]`` to ``[*batch, features]``."""
        if len(self.shape) == 1:
            return action
        return action.reshape(*action.shape[: action.ndim - len(self.shape)], -1)

    def invert(self, action: Tensor) -> Tensor:
        """The inverse of `forward`, ``[*batch, features]``; finite at the edge of the box."""
        unit = self.unit(action)
        edge = 1.0 - torch.finfo(unit.dtype).eps
        return unit.clamp(-edge, edge).atanh()

    def unit(self, action: Tensor) -> Tensor:
        """Map points ``[*batch, *shape]`` of the box to ``[-1, 1]``, ``[*batch, features]``."""
        return self.flat((action - self._center) / self.half_width)

    def perturb(self, action: Tensor, noise: Tensor) -> Tensor:
        """Add ``noise``, in halves of the box, to ``action``, and clip to the box."""
        moved = torch.addcmul(action, self.half_width, noise)
        return torch.minimum(torch.maximum(moved, self.low), self.high)

    def sample(self, *shape: int) -> Tensor:
        """Points drawn uniformly from the box, ``[*shape, *self.shape]``."""
        unit = torch.rand(*shape, *self.shape, device=self.low.device, dtype=self.low.dtype)
        return torch.lerp(self.low, self.high, unit)
