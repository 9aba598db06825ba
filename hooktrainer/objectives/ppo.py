"""Losses of trust regions: `ClipPPOLoss` and `TRPOLoss`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from ..base.checks import check_rate, named
from ..base.tensordicts import entries_of, is_loss, mask_of
from ..errors import ConfigError
from ..networks import Policy, ValueNetwork
from .common import DISTANCES, Entries, Loss, Term, as_tensordict, evaluate, require


class ClipPPOLoss(Loss):
    """The clipped PPO loss, with TorchRL's arguments, entries, values and gradients.

    Schulman et al., 2017, arXiv:1707.06347. Statistics are over all elements of the batch.
    ``set_keys(mask=...)`` names an entry of the agents that act; others are left out of every mean.
    ``set_keys(collected=...)`` names an entry of the rows that were not augmented, over which
    ``kl`` is averaged.

    Reads ``"action"``, ``"action_log_prob"``, ``"advantage"``, ``"value_target"``, the networks'
    inputs and, with ``clip_value``, ``"state_value"``. Returns scalars:

    - ``loss_objective``, ``loss_critic``, ``loss_entropy``, which are minimized;
    - ``entropy``, ``explained_variance`` of the value targets, ``value_clip_fraction``;
    - of the ratio between new and old probabilities: ``clip_fraction``, ``kl_approx`` (minus the
      mean of its logarithm), ``ESS`` (effective sample size, as a fraction of the batch),
      ``max_ratio`` and ``mean_ratio``;
    - with ``kl``: ``kl``, the divergence from the collecting policy. It has a closed form if the
      policy writes the ``kl_keys`` of its distribution, such as ``"loc"`` and ``"scale"``;
      otherwise it is the estimate k3 of Schulman, 2020, joschu.net/blog/kl-approx.html.

    Args:
        actor_network: The policy, from `hooktrainer.networks` or with TorchRL's ``get_dist``.
        critic_network: A TensorDict module that writes ``"state_value"``; ``None`` for no critic.
        clip_epsilon: Bound of the ratio's distance from 1.
        entropy_bonus: Whether to compute ``loss_entropy``. An entropy without a closed form, as
            that of squashed actions, is estimated from one sample.
        entropy_coeff: Factor of ``loss_entropy``.
        critic_coeff: Factor of ``loss_critic``.
        loss_critic_type: ``"l1"``, ``"l2"`` or ``"smooth_l1"``.
        normalize_advantage: Whether the advantages of each batch get mean 0 and deviation 1.
        clip_value: Bound of the value's distance from the old one; ``True`` for ``clip_epsilon``,
            ``None`` or ``False`` for none.
        dual_clip: Bound of the ratio for negative advantages, such as 3 (Ye et al., 2020,
            arXiv:1912.09729); ``None`` for none.
        diagnostics: Compute diagnostics at every n-th call; 0 for never. They take a tenth of an
            optimizer step of small networks.
        kl: Whether to return the divergence from the old policy.

    Examples:
        >>> loss = ClipPPOLoss(CategoricalPolicy(mlp(4, 2)), ValueNetwork(mlp(4, 1)))
        >>> loss.clip_epsilon = 0.1  # coefficients can be annealed
    """

    hint = (
        "Register ValueEstimatorHook(GAE(...)), which writes advantages and value targets; the "
        "policy writes its log-probabilities."
    )

    actor_network: Any
    critic_network: Any
    clip_epsilon: Any
    entropy_coeff: Any
    critic_coeff: Any
    clip_value: Any
    dual_clip: Any

    def __init__(
        self,
        actor_network: nn.Module,
        critic_network: nn.Module | None = None,
        *,
        clip_epsilon: float = 0.2,
        entropy_bonus: bool = True,
        entropy_coeff: float = 0.01,
        critic_coeff: float = 1.0,
        loss_critic_type: str = "smooth_l1",
        normalize_advantage: bool = False,
        clip_value: bool | float | None = None,
        dual_clip: float | None = None,
        diagnostics: int = 1,
        kl: bool = False,
    ) -> None:
        super().__init__(
            action="action",
            sample_log_prob="action_log_prob",
            advantage="advantage",
            value_target="value_target",
            value="state_value",
            mask=None,
            collected=None,
        )
        self.actor_network = actor_network
        self.critic_network = critic_network
        if clip_epsilon < 0:
            raise ConfigError(f"clip_epsilon={clip_epsilon}: must not be negative.")
        check_rate("clip_value", clip_value or 0.0)
        if dual_clip is not None and not dual_clip > 1 + clip_epsilon:
            raise ConfigError(f"dual_clip={dual_clip}: pass a ratio above {1 + clip_epsilon}.")
        self._register_coefficients(
            clip_epsilon=clip_epsilon,
            entropy_coeff=entropy_coeff,
            critic_coeff=critic_coeff,
            clip_value=clip_epsilon if clip_value is True else clip_value or None,
            dual_clip=dual_clip,
        )
        self.normalize_advantage = normalize_advantage
        self.diagnostics = diagnostics
        self.entropy_bonus = entropy_bonus
        self.kl = kl
        distribution = getattr(actor_network, "distribution", None)
        exact = tuple(getattr(distribution, "kl_keys", ()))
        written = getattr(actor_network, "out_keys", ())
        # The entries for the divergence's closed form; none for the estimate.
        self._old_keys = exact if kl and set(exact) <= set(written) else ()
        self._diagnose = True
        self._distance = named("loss function", loss_critic_type, DISTANCES)
        entropy = ["loss_entropy"] if entropy_bonus else []
        critic = [] if critic_network is None else ["loss_critic"]
        self.out_keys = ["loss_objective", *entropy, *critic]

    @property
    def in_keys(self) -> list[NestedKey]:
        keys = self.tensor_keys
        read = [*self.actor_network.in_keys, keys.action, keys.sample_log_prob, keys.advantage]
        if self.critic_network is not None:
            read += [*self.critic_network.in_keys, keys.value_target]
        read += [] if self.clip_value is None else [keys.value]
        read += [*self._old_keys, *([keys.collected] if self.kl else []), keys.mask]
        return list(dict.fromkeys(key for key in read if key is not None))

    @property
    def variant(self) -> bool:
        """Whether this call computes diagnostics."""
        return self._diagnose

    def compute_always_the_same(self) -> bool:
        """Compute diagnostics at every call: in a graph they cost next to nothing."""
        self.diagnostics = min(self.diagnostics, 1)
        return True

    def _begin(self) -> None:
        self._diagnose = self.diagnostics > 0 and self._calls % self.diagnostics == 0
        super()._begin()

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        keys, critic = self.tensor_keys, self.critic_network
        known = _shared_features(self.actor_network, critic, entries)
        log_prob, entropy, exact_kl = self._of_policy(entries, known)
        learned = None if keys.mask is None else entries[keys.mask].reshape(-1)
        # Of no rows there is no mean: then all count, times 0.
        rows = None if learned is None else learned | ~learned.any()

        def flat(entry: Tensor) -> Tensor:
            return entry.reshape(-1) if rows is None else entry.reshape(-1)[rows]

        log_ratio = flat(log_prob) - flat(entries[keys.sample_log_prob])
        out = self._objective(log_ratio, flat(entries[keys.advantage]))
        if self.kl:
            fixed = log_ratio.detach()
            kl = fixed.expm1() - fixed if exact_kl is None else flat(exact_kl)
            if keys.collected is None:
                out["kl"] = kl.mean()
            else:
                counted = flat(entries[keys.collected]).to(kl.dtype)
                out["kl"] = torch.dot(kl, counted) / counted.sum()
        if self.entropy_bonus:
            entropy = flat(entropy)
            out["loss_entropy"] = -self.entropy_coeff * entropy.mean()
            if self._diagnose:
                out["entropy"] = entropy.detach().mean()
        if critic is not None:
            inputs = [entries[key] for key in critic.in_keys]
            value = flat(evaluate(critic, inputs, keys.value, self._batch_dims, **known))
            old_value = None if self.clip_value is None else flat(entries[keys.value])
            out |= self._critic(value, flat(entries[keys.value_target]), old_value)
        if learned is not None:
            out |= {key: loss * learned.any() for key, loss in out.items() if is_loss(key)}
        return out

    def _of_policy(
        self, entries: Entries, known: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return log-probability, entropy, and the divergence if it has a closed form."""
        actor, action = self.actor_network, entries[self.tensor_keys.action]
        inputs = [entries[key] for key in actor.in_keys]
        if self._old_keys:
            parameters = actor.evaluate(*inputs, **known)
            with torch.no_grad():
                old = {key: entries[key] for key in self._old_keys}
                kl = actor.distribution.kl_from(old, parameters)
            return *actor.distribution.log_prob_and_entropy(parameters, action), kl
        if hasattr(actor, "log_prob_and_entropy"):
            return *actor.log_prob_and_entropy(inputs, action, **known), None
        dist = actor.get_dist(as_tensordict(actor.in_keys, inputs, self._batch_dims))
        try:
            entropy = dist.entropy()
        except NotImplementedError:  # no closed form
            entropy = -dist.log_prob(dist.rsample())
        return dist.log_prob(action), entropy, None

    def _objective(self, log_ratio: Tensor, advantage: Tensor) -> dict[str, Tensor]:
        compiling = torch.compiler.is_compiling()
        if self.normalize_advantage and (compiling or advantage.numel() > 1):
            std, mean = torch.std_mean(advantage)
            normalized = (advantage - mean) / std.clamp_min(1e-6)
            # A graph cannot branch on the number of rows that a mask leaves.
            advantage = torch.where(std.isnan(), advantage, normalized) if compiling else normalized
        ratio = log_ratio.exp()
        with torch.no_grad():
            clipped = ratio.clamp(1 - self.clip_epsilon, 1 + self.clip_epsilon)
            # min(ratio * A, clipped * A) has the gradient of the first product or none at all.
            trained = ratio * advantage <= clipped * advantage
            if self.dual_clip is not None:
                beyond = (advantage < 0) & (ratio > self.dual_clip)
                clipped, trained = torch.where(beyond, self.dual_clip, clipped), trained & ~beyond
        gain = torch.dot(torch.where(trained, ratio, clipped), advantage)
        # Not len(): in a trace the number of rows that a mask chooses is symbolic.
        out = {"loss_objective": gain / -ratio.shape[0]}
        if self._diagnose:
            log_ratio, ratio = log_ratio.detach(), ratio.detach()
            mean_ratio = ratio.mean()
            out["clip_fraction"] = (ratio != clipped).to(ratio.dtype).mean()
            out["kl_approx"] = -log_ratio.mean()
            out["ESS"] = mean_ratio.square() / ratio.square().mean()
            out["max_ratio"], out["mean_ratio"] = ratio.max(), mean_ratio
        return out

    def _critic(self, value: Tensor, target: Tensor, old_value: Tensor | None) -> dict[str, Tensor]:
        out = {}
        if self._diagnose:
            with torch.no_grad():
                unexplained = (target - value).var(correction=0)
                total = target.var(correction=0) + torch.finfo(target.dtype).eps
                out["explained_variance"] = 1 - unexplained / total
        if old_value is not None:
            with torch.no_grad():
                change = value - old_value
                within = change.clamp(-self.clip_value, self.clip_value)
                clipped = old_value + within
                # Of the value and the clipped value, the one further from the target counts; the
                # latter has no gradient where it differs.
                error = self._distance(value, target, reduction="none")
                trained = (change == within) | (
                    error >= self._distance(clipped, target, reduction="none")
                )
            value = torch.where(trained, value, clipped)
            if self._diagnose:
                out["value_clip_fraction"] = (change != within).to(value.dtype).mean()
        error = self._distance(value, target, reduction="mean")
        return {"loss_critic": self.critic_coeff * error, **out}


def _shared_features(actor: Any, critic: Any, entries: Entries) -> dict[str, Any]:
    """Return the features of the trunk that two networks share, by keyword; else nothing."""
    trunk = getattr(actor, "trunk", None)
    if trunk is None or id(trunk) != id(getattr(critic, "trunk", None)):
        return {}
    return {"features": trunk(*[entries[key] for key in critic.in_keys])}


# -- Trust region policy optimization.


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

    def add_term(self, term: Term) -> None:
        """Raise ConfigError: a term would train no policy, since the optimizer trains the value."""
        raise ConfigError(
            "TRPOLoss takes no further terms: its policy learns by trust-region steps, which would "
            "not minimize them. Use PPO, or leave the hook out that adds one."
        )

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        critic = self.critic_network
        with torch.no_grad():
            known = _shared_features(self.actor_network, critic, entries)
        inputs = [entries[key] for key in critic.in_keys]
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
