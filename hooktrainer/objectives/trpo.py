"""The surrogate loss, the divergence and the value loss of TRPO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torch.nn.functional import mse_loss

from ..base.tensordicts import entries_of, mask_of
from ..networks import Policy, ValueNetwork
from .common import Entries, Loss, evaluate, require


class TRPOLoss(Loss):
    """Trust region policy optimization (Schulman et al., 2015, arXiv:1502.05477).

    The policy and the value are trained apart. A call returns ``loss_critic``, for an optimizer of
    `own_critic_parameters`; layers that the value shares with the policy get no gradient.
    `policy_terms` is for the trust-region step of the policy, see `hooktrainer.TrustRegion`.

    Args:
        actor_network: The policy.
        critic_network: The value.
        entropy_coeff: Weight of the entropy in the surrogate loss.
        critic_coeff: Factor of ``loss_critic``, the mean squared error.

    Examples:
        >>> loss = TRPOLoss(CategoricalPolicy(mlp(4, 2)), ValueNetwork(mlp(4, 1)))
    """

    hint = "Register ValueEstimatorHook(GAE(...)), which writes advantages and value targets."

    entropy_coeff: Any
    critic_coeff: Any

    def __init__(
        self,
        actor_network: Policy,
        critic_network: ValueNetwork,
        *,
        entropy_coeff: float = 0.0,
        critic_coeff: float = 1.0,
    ) -> None:
        super().__init__(
            action="action",
            sample_log_prob="action_log_prob",
            advantage="advantage",
            value_target="value_target",
        )
        self.actor_network = actor_network
        self.critic_network = critic_network
        self._register_coefficients(entropy_coeff=entropy_coeff, critic_coeff=critic_coeff)
        self.out_keys = ["loss_critic"]

    @property
    def in_keys(self) -> list[NestedKey]:
        return [*self.critic_network.in_keys, self.tensor_keys.value_target]

    @property
    def own_critic_parameters(self) -> list[torch.nn.Parameter]:
        """The parameters of the value that are not also the policy's."""
        actor = set(self.actor_network.parameters())
        return [p for p in self.critic_network.parameters() if p not in actor]

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        critic, known = self.critic_network, {}
        inputs = [entries[key] for key in critic.in_keys]
        trunk: Any = critic.trunk
        if trunk is not None and id(trunk) == id(self.actor_network.trunk):
            with torch.no_grad():
                known["features"] = trunk(*inputs)
        value = evaluate(critic, inputs, "state_value", self._batch_dims, **known)
        error = mse_loss(value, entries[self.tensor_keys.value_target].reshape(value.shape))
        return {"loss_critic": self.critic_coeff * error}

    def policy_terms(self, batch: TensorDictBase) -> Callable[[], tuple[Tensor, Tensor]]:
        """Return a function of the policy's parameters: the surrogate loss and the divergence.

        The surrogate loss is minus the mean of the probability ratio to the collecting policy times
        the normalized advantage. The divergence is from the policy at the time of this call to the
        changed one. It has a closed form if the distribution has ``kl_keys``; otherwise it is the
        estimate k3 of Schulman, 2020, joschu.net/blog/kl-approx.html, whose Hessian is the
        empirical Fisher information.

        Args:
            batch: ``[*batch]`` collected steps with advantages; padding is left out.

        Raises:
            KeyError: If an entry is missing.
        """
        keys, actor = self.tensor_keys, self.actor_network
        needed = [*actor.in_keys, keys.action, keys.sample_log_prob, keys.advantage]
        entries = entries_of(batch, needed)
        for key in needed:
            require(batch, key, self, self.hint)
        mask, distribution = mask_of(batch), actor.distribution

        def flat(entry: Tensor) -> Tensor:
            return entry.reshape(-1) if mask is None else entry.reshape(batch.shape)[mask]

        inputs, action = [entries[key] for key in actor.in_keys], entries[keys.action]
        advantage, collected = flat(entries[keys.advantage]), flat(entries[keys.sample_log_prob])
        advantage = (advantage - advantage.mean()) / advantage.std(correction=0).clamp_min(1e-8)
        with torch.no_grad():
            before = actor.evaluate(*inputs)
            old = distribution.sample(before, ["action", *distribution.kl_keys], True)
            old_log_prob, _ = distribution.log_prob_and_entropy(before, action)

        def terms() -> tuple[Tensor, Tensor]:
            parameters = actor.evaluate(*inputs)
            log_prob, entropy = distribution.log_prob_and_entropy(parameters, action)
            ratio = (flat(log_prob) - collected).exp()
            surrogate = -(ratio * advantage).mean() - self.entropy_coeff * flat(entropy).mean()
            if distribution.kl_keys:
                kl = distribution.kl_from(old, parameters)
            else:
                change = log_prob - old_log_prob
                kl = change.expm1() - change
            return surrogate, flat(kl).mean()

        return terms
