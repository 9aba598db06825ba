"""`distribution_for`: the distribution that goes with an action space."""

from __future__ import annotations

from typing import Any, Literal

import torch
from gymnasium import spaces

from ...base.space_parts import parts_of
from ...errors import ConfigError
from .action_distribution import ActionDistribution
from .continuous import Beta, DiagonalGaussian, SquashedGaussian
from .discrete import Bernoulli, Categorical, MultiCategorical
from .joint import Joint

Continuous = Literal["gaussian", "squashed", "beta"]


def distribution_for(
    space: spaces.Space[Any], continuous: Continuous = "gaussian", log_std: float = 0.0
) -> ActionDistribution:
    """The distribution over the actions of a space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, Box of any shape, or a Dict or Tuple of these.
        continuous: Of a Box: ``"gaussian"``, not bounded; ``"squashed"`` into its bounds by tanh;
            or ``"beta"``, within its bounds.
        log_std: Initial log standard deviation of ``"gaussian"``.

    Raises:
        ConfigError: If the space is of another kind or empty, or bounds are needed and missing.

    Examples:
        >>> distribution_for(spaces.MultiDiscrete([3, 4])).parameter_features
        7
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
        return _over_box(space, continuous, log_std)
    raise ConfigError(
        f"The action space {space} has no distribution here. Use Discrete, MultiDiscrete, "
        "MultiBinary, Box, or a Dict or Tuple of these, or derive from ActionDistribution."
    )


def _over_box(space: spaces.Box, continuous: str, log_std: float) -> ActionDistribution:
    shape = tuple(space.shape)
    if continuous == "gaussian":
        return DiagonalGaussian(shape, log_std)
    bounds = (torch.from_numpy(space.low).float(), torch.from_numpy(space.high).float())
    if continuous == "squashed":
        return SquashedGaussian(shape, *bounds)
    if continuous == "beta":
        return Beta(shape, *bounds)
    raise ConfigError(
        f"action_distribution={continuous!r}: the choices are 'gaussian', 'squashed' and 'beta'."
    )
