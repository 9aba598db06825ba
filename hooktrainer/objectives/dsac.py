"""Soft actor-critic for discrete actions (Christodoulou, 2019, arXiv:1910.07207)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..base.checks import check_count, check_fraction
from .common import Entries, KeyOf, next_key, this_key
from .sac import SACLoss


class DiscreteSACLoss(SACLoss):
    """The SAC loss for one discrete action, with the values and gradients of TorchRL's.

    Expectations over the policy are sums over the actions: nothing is drawn. Actions are indices
    ``[*batch]``. Forbidden actions have no probability, and the entropy's target in a state is that
    of the actions it allows. Returns what `SACLoss` does.

    Args:
        actor_network: The policy, a `CategoricalPolicy`.
        qvalue_network: Modules that write ``"action_value"``, such as `QNetwork` without a mask;
            or one, which is copied with new weights, ``num_qvalue_nets=2`` in all.
        num_actions: Number of actions.
        target_entropy_ratio: Target of the entropy, relative to that of uniform actions.
        **options: Further arguments of `SACLoss`.
    """

    _more_keys: ClassVar = {"action_value": "action_value"}

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        num_actions: int,
        *,
        target_entropy_ratio: float = 0.98,
        **options: Any,
    ) -> None:
        check_count("num_actions", num_actions)
        ratio = check_fraction("target_entropy_ratio", target_entropy_ratio)
        entropy = ratio * math.log(num_actions)
        super().__init__(actor_network, qvalue_network, target_entropy=entropy, **options)
        self.target_entropy_ratio = ratio

    def _row_losses(self, entries: Entries) -> dict[str, Tensor]:
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            p, log_p = self._probabilities(entries, next_key)
            following = self._action_values(self.target_qvalue_network, entries, next_key).amin(0)
            soft = (p * (following - alpha * log_p)).sum(-1)
            target = self._one_step_target(entries, soft)
        values = self._action_values(self._critics, entries)
        action = entries[self.tensor_keys.action].reshape(-1, 1).expand(len(values), -1, 1)
        chosen = values.gather(-1, action).squeeze(-1)
        out = {"loss_qvalue": self._reduce(self._errors(chosen, target), entries)}
        if self._trains_actor:
            out |= self._expected_losses(entries, alpha, values.detach().amin(0))
        return {**out, "td_error": self._td_error(chosen.detach(), target)}

    def _expected_losses(self, entries: Entries, alpha: Tensor, value: Tensor) -> dict[str, Tensor]:
        """Return what `_policy_losses` does, given values ``[batch, actions]``."""
        p, log_p = self._probabilities(entries)
        loss = (p * (alpha * log_p - value)).sum(-1)
        entropy = -(p * log_p).sum(-1).detach()
        missing = self._target_entropy(entries) - entropy
        return {
            "loss_actor": self._reduce(loss, entries),
            "loss_alpha": self._reduce(-self.log_alpha * missing, entries),
            "alpha": alpha,
            "entropy": entropy.mean(),
        }

    def _target_entropy(self, entries: Entries) -> Tensor | float:
        key = self.actor_network.action_mask_key
        if key is None:
            return self.target_entropy
        allowed = entries[key].flatten(0, -2).sum(-1)
        return self.target_entropy_ratio * allowed.float().log()

    def _probabilities(self, entries: Entries, at: KeyOf = this_key) -> tuple[Tensor, Tensor]:
        """Return the policy's probabilities and their logarithms, ``[batch, actions]``."""
        inputs, known = self._called_with(self.actor_network, entries, at, detached=True)
        log_p = self.actor_network.evaluate(*inputs, **known).flatten(0, -2).log_softmax(-1)
        p = log_p.exp()
        return p, log_p.where(p > 0, 0.0)  # the product of 0 and a huge number is to stay 0

    def _action_values(
        self, networks: Iterable[Any], entries: Entries, at: KeyOf = this_key
    ) -> Tensor:
        """Return ``[networks, batch, actions]``."""
        key = self.tensor_keys.action_value
        values = [self._output(each, entries, key, at) for each in networks]
        return torch.stack([value.flatten(0, -2) for value in values])
