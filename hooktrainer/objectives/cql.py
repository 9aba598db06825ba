"""Conservative Q-learning (Kumar et al., 2020, arXiv:2006.04779)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..base.checks import check_rate
from ..errors import ConfigError
from .common import Entries, next_key, this_key
from .dqn import DQNLoss
from .sac import SACLoss


class CQLLoss(SACLoss):
    """The SAC loss with a penalty on the values of actions outside the data: the paper's CQL(H).

    The penalty, per Q-function and state, is the logarithm of the integral of ``exp(value)`` over
    the action box, minus the value of the data's action. The integral is estimated from uniform
    actions and from the policy's actions in this and the next state, each divided by its density.

    Reads and returns what `SACLoss` does, and also returns ``loss_cql``, which is minimized. Unlike
    ``torchrl.objectives.CQLLoss`` it follows the paper: one sum over all sampled actions, not over
    three at a time; uniform actions from the policy's box, not ``[-1, 1]``; no ``loss_actor_bc``.

    Args:
        actor_network: The policy, a `TanhGaussianPolicy` or any module with its ``rsample`` and
            ``box``.
        qvalue_network: As for `SACLoss`.
        min_q_weight: Weight of the penalty.
        num_random: Actions drawn from each of the three sources.
        **options: Further arguments of `SACLoss`.
    """

    out_keys = ("loss_actor", "loss_qvalue", "loss_cql", "loss_alpha")

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        *,
        min_q_weight: float = 1.0,
        num_random: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **options)
        if num_random < 1 or min_q_weight < 0:
            raise ConfigError(
                f"CQLLoss: {num_random=} must be positive, {min_q_weight=} not negative."
            )
        self.min_q_weight = min_q_weight
        self.num_random = num_random

    def _penalty(self, entries: Entries, values: Tensor) -> dict[str, Tensor]:
        penalty = (self._soft_maximum(entries) - values).sum(0)
        return {"loss_cql": self._reduce(self.min_q_weight * penalty, entries)}

    def _next_value(self, entries: Entries, alpha: Tensor) -> Tensor:
        return super()._next_value(entries, torch.zeros_like(alpha))  # without the entropy

    def _soft_maximum(self, entries: Entries) -> Tensor:
        """Return ``[networks, batch]``: the log integral of ``exp(value)`` over the box."""
        actor, number = self.actor_network, self.num_random
        keys = [key for key in self.qvalue_network[0].in_keys if key != self.tensor_keys.action]
        states = {key: entries[key].repeat_interleave(number, 0) for key in keys}
        count = len(next(iter(states.values())))
        sources = [(actor.box.sample(count), -actor.box.half_width.mul(2).log().sum())]
        with torch.no_grad():
            for at in (this_key, next_key):
                inputs = [entries[at(key)].repeat_interleave(number, 0) for key in actor.in_keys]
                action, density = actor.rsample(*inputs)
                sources.append((action, density.reshape(-1)))
        # One pass for all three sources: `states` repeated three times.
        values = self._values(
            self.qvalue_network,
            {key: state.repeat(3, *[1] * (state.ndim - 1)) for key, state in states.items()},
            torch.cat([action for action, _ in sources]),
        )
        densities = torch.cat([density.expand(count) for _, density in sources])
        return (values - densities).view(len(values), 3, -1, number).logsumexp((1, 3))


class DiscreteCQLLoss(DQNLoss):
    """The DQN loss with CQL's penalty on the values of other actions than the data's.

    The penalty, ``loss_cql``, is the logarithm of the sum of ``exp(value)`` over all actions, minus
    the value of the data's action. It reads and returns what `DQNLoss` does besides. The values are
    those of ``torchrl.objectives.DiscreteCQLLoss``, which halves the DQN loss.

    Args:
        value_network: As for `DQNLoss`.
        min_q_weight: Weight of the penalty.
        **options: Further arguments of `DQNLoss`.
    """

    out_keys = ("loss", "loss_cql")  # type: ignore[assignment]

    def __init__(
        self, value_network: nn.Module, *, min_q_weight: float = 1.0, **options: Any
    ) -> None:
        super().__init__(value_network, **options)
        self.min_q_weight = check_rate("DiscreteCQLLoss: min_q_weight", min_q_weight)

    def _penalty(self, entries: Entries, action_value: Tensor, value: Tensor) -> dict[str, Tensor]:
        penalty = self.min_q_weight * (action_value.logsumexp(-1) - value)
        return {"loss_cql": self._reduce(penalty, entries)}
