"""Twin delayed deep deterministic policy gradient, TD3, and variants of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..base.checks import check_rate
from ..errors import ConfigError
from .actor_critic import DeterministicLoss
from .common import Entries
from .distributional import CategoricalValues


class TD3Loss(DeterministicLoss):
    """The TD3 loss, with the values and gradients of TorchRL's if actions lie in [-1, 1].

    Fujimoto et al., 2018, arXiv:1802.09477. Returns ``loss_qvalue``, the means ``pred_value`` and
    ``target_value`` and, at every ``policy_delay``-th call, ``loss_actor``. Writes ``"td_error"``,
    squared errors ``[*batch]``. What it reads, and further arguments, are those of `ReplayLoss`.

    As in the paper, unlike in TorchRL, noise is in halves of the action's range, and the actor is
    trained less often than the Q-functions. Move the targets as often as the actor, with
    ``register_op("post_optim", updater.step, every=Every(optim_steps=2))``.

    Args:
        actor_network: The policy, a `DeterministicPolicy` or any module with its ``evaluate`` and
            ``box``.
        qvalue_network: As for `SACLoss`.
        policy_delay: The actor is trained at every n-th call.
        policy_noise: Deviation of the noise on the target's action, in halves of the box.
        noise_clip: Bound of that noise, in halves of the box.
    """

    out_keys = ("loss_actor", "loss_qvalue")
    _value_loss = "loss_qvalue"

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        *,
        policy_delay: int = 2,
        policy_noise: float = 0.2,
        noise_clip: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, policy_delay=policy_delay, **options)
        if policy_noise < 0 or noise_clip < 0:
            raise ConfigError(f"TD3Loss: {policy_noise=} and {noise_clip=} must not be negative.")
        self.policy_noise = policy_noise
        self.noise_clip = noise_clip

    def _noise(self, entries: Entries) -> Tensor:
        noise = torch.empty_like(entries[self.tensor_keys.action]).normal_() * self.policy_noise
        return noise.clamp(-self.noise_clip, self.noise_clip)


class CategoricalTD3Loss(CategoricalValues, TD3Loss):
    """The TD3 loss with categorical Q-functions, as in FastTD3 (Seo et al., 2025).

    arXiv:2505.22642. For its arguments see `CategoricalValues` and `TD3Loss`, whose entries it
    reads and returns.
    """


class TD3BCLoss(TD3Loss):
    """The TD3 loss with behavior cloning, for data sets (Fujimoto and Gu, 2021, arXiv:2106.06860).

    The actor's loss is the mean squared difference to the data's actions, in halves of the box,
    minus ``alpha`` times the values of its own actions divided by their mean absolute value. For
    actions in [-1, 1] it has TorchRL's values and gradients. It reads and returns what `TD3Loss`
    does.

    Args:
        actor_network: As for `TD3Loss`.
        qvalue_network: As for `TD3Loss`.
        alpha: Weight of the values.
        **options: Further arguments of `TD3Loss`.
    """

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        *,
        alpha: float = 2.5,
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **options)
        self.alpha = check_rate("TD3BCLoss: alpha", alpha)

    def _actor_loss(self, gain: Tensor, action: Tensor, entries: Entries) -> Tensor:
        weight = self.alpha / gain.detach().abs().mean().clamp_min(1e-8)
        away = action - entries[self.tensor_keys.action].reshape(action.shape)
        squares = (away / self.actor_network.box.half_width).square()
        return squares.reshape(len(squares), -1).mean(1) - weight * gain
