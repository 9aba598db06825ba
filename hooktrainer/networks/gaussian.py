"""Policies over vectors of continuous actions."""

from __future__ import annotations

from collections.abc import Sequence

from tensordict import NestedKey
from torch import nn

from .box import Box
from .distributions import DiagonalGaussian, SquashedGaussian
from .distributions.continuous import Bound
from .policy import Policy


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
        trunk: As for `Policy`.
    """

    def __init__(
        self,
        network: nn.Module,
        action_features: int,
        log_std: float = 0.0,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[str] = ("action", "action_log_prob"),
        trunk: nn.Module | None = None,
    ) -> None:
        distribution = DiagonalGaussian((action_features,), log_std)
        super().__init__(network, distribution, in_keys, out_keys, trunk=trunk)


class TanhGaussianPolicy(Policy):
    """A normal distribution squashed into a box by tanh; the policy of SAC.

    Writes ``"action"`` ``[*batch, features]`` and, if asked, ``"action_log_prob"`` ``[*batch]``.
    Mean and log-deviation both depend on the observation; the latter is clipped to ``[-20, 2]`` as
    in the paper's code (Haarnoja et al., 2018, Soft Actor-Critic).

    Args:
        network: Maps an observation to mean and log-deviation, ``[*batch, 2 * features]``.
        action_features: Size of an action, or its shape.
        low: Least action, one number or one for each feature.
        high: Greatest action, likewise.
        in_keys: Entries the network reads.
        out_keys: Entries the policy writes.
        trunk: As for `Policy`.

    Raises:
        ConfigError: If ``low`` is not below ``high``, or one of them is infinite.
    """

    distribution: SquashedGaussian

    def __init__(
        self,
        network: nn.Module,
        action_features: int | tuple[int, ...],
        low: Bound = -1.0,
        high: Bound = 1.0,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[str] = ("action",),
        trunk: nn.Module | None = None,
    ) -> None:
        shape = (action_features,) if isinstance(action_features, int) else action_features
        squashed = SquashedGaussian(shape, low, high)
        super().__init__(network, squashed, in_keys, out_keys, trunk=trunk)

    @property
    def box(self) -> Box:
        """The bounds of the action."""
        return self.distribution.box
