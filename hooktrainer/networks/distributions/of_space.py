"""`distribution_for`: the distribution for an action space."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Collection, Sequence
from typing import Any, Literal

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ...base.checks import named
from ...base.space_parts import parts_of
from ...errors import ConfigError
from .continuous import Beta, DiagonalGaussian, SquashedGaussian
from .discrete import ActionDistribution, Bernoulli, Categorical, MultiCategorical

Continuous = Literal["gaussian", "squashed", "beta"]


def distribution_for(
    space: spaces.Space[Any], continuous: Continuous = "gaussian", log_std: float = 0.0
) -> ActionDistribution:
    """The distribution over the actions of a space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, Box of any shape, or a Dict or Tuple of these.
        continuous: For a Box: ``"gaussian"``, not bounded; ``"squashed"`` into its bounds by tanh;
            or ``"beta"``, within its bounds.
        log_std: Initial log standard deviation of ``"gaussian"``.

    Raises:
        ConfigError: If the space is of another kind or empty, or lacks necessary bounds.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = [distribution_for(part, continuous, log_std) for _, part in parts_of(space)]
        if not parts:
            raise ConfigError(f"The action space {space} is empty: give it at least one entry.")
        return Joint(parts)
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space.nvec.ravel().tolist(), tuple(space.shape))
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(tuple(space.shape))
    if isinstance(space, spaces.Box):
        kinds = {"gaussian": DiagonalGaussian, "squashed": SquashedGaussian, "beta": Beta}
        kind = named("action_distribution", continuous, kinds)
        if kind is DiagonalGaussian:
            return DiagonalGaussian(tuple(space.shape), log_std)
        bounds = (torch.from_numpy(bound).float() for bound in (space.low, space.high))
        return kind(tuple(space.shape), *bounds)
    raise ConfigError(
        f"The action space {space} has no distribution here. Use Discrete, MultiDiscrete, "
        "MultiBinary, Box, or a Dict or Tuple of these, or derive from ActionDistribution."
    )


# -- `Joint`: the distribution over a Dict or Tuple of actions.


class Joint(ActionDistribution):
    """Independent distributions over the parts of a Dict or Tuple, concatenated in a vector.

    The vector is int64 if all parts are, else float32; parameters and masks are concatenated as
    well. `hooktrainer.collect` converts it to dicts and tuples for the environments.

    Args:
        parts: The distributions, in the order of the space.
    """

    def __init__(self, parts: Sequence[ActionDistribution]) -> None:
        super().__init__(
            (sum(math.prod(part.shape) for part in parts),),
            sum(part.parameter_features for part in parts),
        )
        self.parts: Any = nn.ModuleList(parts)
        self.mask_size = sum(part.mask_size for part in parts)

    def sample(
        self, parameters: Tensor, keys: Collection[str], deterministic: bool
    ) -> dict[str, Tensor]:
        wanted = [key for key in keys if key in ("action", "action_log_prob")]
        drawn = [
            part.complete(part.sample(own, wanted, deterministic), wanted)
            for part, own in self._each(parameters)
        ]
        out = {"action": self._joined([one["action"] for one in drawn], parameters)}
        if "action_log_prob" in keys:
            out["action_log_prob"] = _sum([one["action_log_prob"] for one in drawn])
        return out

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        pairs = zip(self._each(parameters), self._taken_apart(action), strict=True)
        results = [part.log_prob_and_entropy(own, taken) for (part, own), taken in pairs]
        log_probs, entropies = zip(*results, strict=True)
        return _sum(log_probs), _sum(entropies)

    def rsample(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        drawn = [part.rsample(own) for part, own in self._each(parameters)]
        actions, log_probs = zip(*drawn, strict=True)
        batch = parameters.shape[:-1]
        return torch.cat([each.reshape(*batch, -1) for each in actions], -1), _sum(log_probs)

    def encoded(self, action: Tensor) -> Tensor:
        pairs = zip(self.parts, self._taken_apart(action), strict=True)
        encoded = [part.encoded(taken) for part, taken in pairs]
        return torch.cat([each.reshape(*action.shape[:-1], -1) for each in encoded], -1)

    @property
    def encoded_shape(self) -> tuple[int, ...]:
        return (sum(math.prod(part.encoded_shape) for part in self.parts),)

    @property
    def target_entropy(self) -> float:
        return sum(part.target_entropy for part in self.parts)

    def target_entropy_within(self, mask: Tensor) -> Tensor | float:
        masks = mask.split_with_sizes([part.mask_size for part in self.parts], -1)
        pairs = zip(self.parts, masks, strict=True)
        return sum(part.target_entropy_within(allowed) for part, allowed in pairs)

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        masks = mask.split_with_sizes([part.mask_size for part in self.parts], -1)
        return torch.cat(
            [
                part.masked(own, allowed) if part.mask_size else own
                for (part, own), allowed in zip(self._each(parameters), masks, strict=True)
            ],
            -1,
        )

    def _each(self, parameters: Tensor) -> list[tuple[Any, Tensor]]:
        sizes = [part.parameter_features for part in self.parts]
        return list(zip(self.parts, parameters.split_with_sizes(sizes, -1), strict=True))

    def _taken_apart(self, action: Tensor) -> list[Tensor]:
        """Return the action of each part, ``[*batch, *shape]``, integers if it is discrete."""
        taken, widths = [], [math.prod(part.shape) for part in self.parts]
        for part, one in zip(self.parts, action.split_with_sizes(widths, -1), strict=True):
            shaped = one.reshape(*one.shape[:-1], *part.shape)
            whole = part.mask_size and shaped.is_floating_point()
            taken.append(shaped.long() if whole else shaped)
        return taken

    def _joined(self, actions: Sequence[Tensor], parameters: Tensor) -> Tensor:
        batch = parameters.shape[:-1]
        discrete = not any(action.is_floating_point() for action in actions)
        dtype = torch.int64 if discrete else parameters.dtype
        return torch.cat([action.reshape(*batch, -1).to(dtype) for action in actions], -1)


def _sum(terms: Sequence[Tensor]) -> Tensor:
    return functools.reduce(operator.add, terms)
