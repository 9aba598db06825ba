"""Soft actor-critic with a learned temperature (Haarnoja et al., 2018, arXiv:1812.05905)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from tensordict import NestedKey
from torch import Tensor, nn

from ..base.checks import check_count, check_fraction, check_positive
from .actor_critic import DelayedActorLoss
from .common import Entries, KeyOf, next_key, this_key


class SACLoss(DelayedActorLoss):
    """The SAC loss without a state value network, with the values and gradients of TorchRL's.

    Returns ``loss_actor``, ``loss_qvalue`` and ``loss_alpha``, which train separate parameters,
    ``alpha`` and ``entropy``. Writes ``"td_error"`` ``[*batch]``. What it reads, and further
    arguments, are those of `ReplayLoss`.

    Args:
        actor_network: The policy, a `TanhGaussianPolicy` or any module with its ``rsample``. That
            of a `Policy` for other spaces is differentiable straight through discrete actions, of
            which the Q-functions get one-hot vectors.
        qvalue_network: Modules that write ``"state_action_value"``; or one, which is copied with
            new weights, ``num_qvalue_nets=2`` in all.
        alpha_init: Initial temperature, the weight of the entropy.
        fixed_alpha: Whether the temperature is constant; then ``loss_alpha`` trains nothing.
        target_entropy: Target of the temperature; ``"auto"`` for minus the number of continuous
            action features, plus half of the greatest entropy of discrete ones, in each state of
            those that its action mask allows.
        policy_delay: The actor and the temperature are trained at every n-th call.
    """

    out_keys: Sequence[str] = ("loss_actor", "loss_qvalue", "loss_alpha")
    log_alpha: Any

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        *,
        alpha_init: float = 1.0,
        fixed_alpha: bool = False,
        target_entropy: float | str = "auto",
        policy_delay: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, policy_delay=policy_delay, **options)
        check_positive("alpha_init", alpha_init)
        log_alpha = torch.tensor(math.log(alpha_init))
        if fixed_alpha:
            self.register_buffer("log_alpha", log_alpha)
        else:
            self.log_alpha = nn.Parameter(log_alpha)
        self._mask_key: NestedKey | None = None
        if target_entropy == "auto":
            self._mask_key = getattr(actor_network, "action_mask_key", None)
            distribution = getattr(actor_network, "distribution", None)
            target_entropy = (
                -self.actor_network.action_features
                if distribution is None
                else distribution.target_entropy
            )
        self.target_entropy = float(target_entropy)

    def _row_losses(self, entries: Entries) -> dict[str, Tensor]:
        alpha = self.log_alpha.detach().exp()
        values, target = self._values_and_target(entries, alpha)
        return {
            "loss_qvalue": self._reduce(self._errors(values, target), entries),
            **self._penalty(entries, values),
            **(self._policy_losses(entries, alpha) if self._trains_actor else {}),
            "td_error": self._td_error(values.detach(), target),
        }

    def _values_and_target(self, entries: Entries, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values of the batch's actions, ``[networks, batch]``, and their target."""
        with torch.no_grad():
            action, log_prob = self._drawn(entries, next_key)
            following = self._values(self.target_qvalue_network, entries, action, next_key)
            target = self._target(entries, following, alpha * log_prob)
        return self._values(self._critics, entries, self._taken(entries)), target

    def _taken(self, entries: Entries) -> Tensor:
        """Return the batch's actions, as the actor encodes them."""
        encoded = getattr(self.actor_network, "encoded", None)
        action = entries[self.tensor_keys.action]
        return action if encoded is None else encoded(action)

    def _td_error(self, values: Tensor, target: Tensor) -> Tensor:
        """Return the greatest absolute error of the networks, ``[batch]``."""
        return (self._means(values) - self._target_means(target)).abs().amax(0)

    def _penalty(self, entries: Entries, values: Tensor) -> dict[str, Tensor]:
        """Return further losses of the Q-functions, given their values ``[networks, batch]``."""
        return {}

    def _policy_losses(self, entries: Entries, alpha: Tensor) -> dict[str, Tensor]:
        """Return losses and diagnostics of the actor and the temperature."""
        action, log_prob = self._drawn(entries)
        value = self._for_policy(self._values(self._critics, entries, action, frozen=True))
        surprise = log_prob.detach()
        missing = surprise + self._target_entropy(entries)
        return {
            "loss_actor": self._reduce(alpha * log_prob - value, entries),
            "loss_alpha": self._reduce(-self.log_alpha * missing, entries),
            "alpha": alpha,
            "entropy": -surprise.mean(),
        }

    def _target_entropy(self, entries: Entries) -> Tensor | float:
        """Return the target, of each state if a mask forbids actions there."""
        if self._mask_key is None:
            return self.target_entropy
        mask = entries[self._mask_key].flatten(0, -2)
        return self.actor_network.distribution.target_entropy_within(mask)

    def _for_policy(self, values: Tensor) -> Tensor:
        """Return the values ``[batch]`` that the actor maximizes, of ``[networks, batch]``."""
        return self._means(values).min(0).values

    def _drawn(self, entries: Entries, at: KeyOf = this_key) -> tuple[Tensor, Tensor]:
        """Return random actions of the actor and their log-probabilities, ``[batch]``."""
        inputs, known = self._called_with(self.actor_network, entries, at, detached=True)
        action, log_prob = self.actor_network.rsample(*inputs, **known)
        return action, log_prob.reshape(-1)


# -- Of discrete actions (Christodoulou, 2019, arXiv:1910.07207).


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
