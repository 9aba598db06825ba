"""Soft actor-critic with a learned temperature (Haarnoja et al., 2018, arXiv:1812.05905)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import nn

from ..errors import ConfigError
from .common import (
    Loss,
    distance,
    evaluate,
    evaluate_frozen,
    next_key,
    reduction_function,
    this_key,
    weighted,
)
from .targets import target_copy


class SACLoss(Loss):
    """The SAC loss without a state value network, with the values and gradients of TorchRL's.

    Reads the networks' inputs, now and under ``"next"``, ``"action"``, ``("next", "reward")``,
    ``("next", "terminated")`` and, if it is there, ``"priority_weight"``. Returns ``loss_actor``,
    ``loss_qvalue``, ``loss_alpha``, whose sum is minimized (each reaches its own parameters only),
    ``alpha`` and ``entropy``, and writes ``"td_error"`` ``[*batch]`` into the batch.

    Args:
        actor_network: The policy, a `TanhGaussianPolicy` or any module with its ``rsample``.
        qvalue_network: Modules that write ``"state_action_value"``, one for each Q-function; or
            one, of which copies with other weights are made.
        num_qvalue_nets: Number of Q-functions made from one module.
        gamma: Discount factor.
        loss_function: ``"l1"``, ``"l2"`` or ``"smooth_l1"``.
        alpha_init: Initial temperature, the weight of the entropy.
        fixed_alpha: Whether the temperature stays; then ``loss_alpha`` trains nothing.
        target_entropy: Entropy the temperature is adapted to; ``"auto"`` for minus the number of
            action features.
        delay_qvalue: Whether targets come from delayed copies, to be moved by `SoftUpdate`.
        reduction: ``"mean"`` (weighted by the priority weights) or ``"sum"``.
    """

    actor_network: Any
    qvalue_network: Any
    target_qvalue_network: Any
    log_alpha: Any

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        *,
        num_qvalue_nets: int = 2,
        gamma: float = 0.99,
        loss_function: str = "smooth_l1",
        alpha_init: float = 1.0,
        fixed_alpha: bool = False,
        target_entropy: float | str = "auto",
        delay_qvalue: bool = True,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            action="action",
            state_action_value="state_action_value",
            reward="reward",
            terminated="terminated",
            priority="td_error",
            priority_weight="priority_weight",
        )
        reduction_function(reduction)
        if isinstance(qvalue_network, nn.Module):
            qvalue_network = [qvalue_network, *_variants(qvalue_network, num_qvalue_nets - 1)]
        self.actor_network = actor_network
        self.qvalue_network = nn.ModuleList(qvalue_network)
        self.target_qvalue_network = target_copy(self.qvalue_network) if delay_qvalue else None
        log_alpha = torch.tensor(math.log(alpha_init))
        if fixed_alpha:
            self.register_buffer("log_alpha", log_alpha)
        else:
            self.log_alpha = nn.Parameter(log_alpha)
        if target_entropy == "auto":
            features: int | None = getattr(actor_network, "action_features", None)
            if features is None:
                raise ConfigError(
                    f"SACLoss(target_entropy='auto'): {type(actor_network).__name__} has no "
                    "action_features; pass a number, usually minus the number of action features."
                )
            target_entropy = -features
        self.target_entropy = float(target_entropy)
        self.gamma = gamma
        self._reduction = reduction
        self._distance = distance(loss_function)

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries it reads, but for the optional one."""
        keys, states = self.tensor_keys, self.actor_network.in_keys
        of_value = [key for key in self.qvalue_network[0].in_keys if key != keys.action]
        following = dict.fromkeys([*states, *of_value])
        read = [*following, keys.action, *map(next_key, following)]
        return [*read, next_key(keys.reward), next_key(keys.terminated)]

    @property
    def out_keys(self) -> list[str]:
        """The losses it returns."""
        return ["loss_actor", "loss_qvalue", "loss_alpha"]

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Compute the losses of a batch, ``[*batch]``, and write its ``"td_error"``.

        Raises:
            KeyError: If an entry is missing.
        """
        keys = self.tensor_keys
        entries = self._entries(tensordict)
        if (weights := tensordict.get(keys.priority_weight, None)) is not None:
            entries[keys.priority_weight] = weights
        out = self._losses(entries)
        tensordict.set(keys.priority, out.pop("td_error").reshape(tensordict.shape))
        return TensorDict(out)

    def _losses(self, entries: Mapping[NestedKey, torch.Tensor]) -> dict[str, torch.Tensor]:
        weights = entries.get(self.tensor_keys.priority_weight)
        alpha = self.log_alpha.detach().exp()

        target = self._target(entries, alpha)
        values = self._values(self.qvalue_network, entries, entries[self.tensor_keys.action])
        errors = self._distance(values, target.expand_as(values), reduction="none").sum(0)
        td_error = (values.detach() - target).abs().amax(0)

        actor = self.actor_network
        action, log_prob = actor.rsample(*(entries[key] for key in actor.in_keys))
        value = self._values(self.qvalue_network, entries, action, evaluate=evaluate_frozen)
        value = value.min(0).values
        log_prob = log_prob.reshape(-1)
        surprise = log_prob.detach()
        return {
            "loss_actor": weighted(alpha * log_prob - value, weights, self._reduction),
            "loss_qvalue": weighted(errors, weights, self._reduction),
            "loss_alpha": weighted(
                -self.log_alpha * (surprise + self.target_entropy), weights, self._reduction
            ),
            "alpha": alpha,
            "entropy": -surprise.mean(),
            "td_error": td_error,
        }

    @torch.no_grad()
    def _target(
        self, entries: Mapping[NestedKey, torch.Tensor], alpha: torch.Tensor
    ) -> torch.Tensor:
        keys, actor = self.tensor_keys, self.actor_network
        networks = self.target_qvalue_network
        if networks is None:
            networks = self.qvalue_network
        action, log_prob = actor.rsample(*(entries[next_key(key)] for key in actor.in_keys))
        value = self._values(networks, entries, action, next_key).amin(0)
        soft_value = value - alpha * log_prob.reshape(-1)
        alive = ~entries[next_key(keys.terminated)].reshape(-1)
        return entries[next_key(keys.reward)].reshape(-1) + self.gamma * soft_value * alive

    def _values(
        self,
        networks: Any,
        entries: Mapping[NestedKey, torch.Tensor],
        action: torch.Tensor,
        at: Callable[[NestedKey], NestedKey] = this_key,
        evaluate: Callable[..., torch.Tensor] = evaluate,
    ) -> torch.Tensor:
        """The value of ``action`` by every network, ``[networks, batch]``."""
        keys = self.tensor_keys
        values = []
        for network in networks:
            inputs = [action if key == keys.action else entries[at(key)] for key in network.in_keys]
            values.append(evaluate(network, inputs, keys.state_action_value).reshape(-1))
        return torch.stack(values)


def _variants(network: nn.Module, number: int) -> Iterator[nn.Module]:
    """Copies of ``network`` with newly drawn weights."""
    for _ in range(number):
        variant = copy.deepcopy(network)
        for module in variant.modules():
            reset: Callable[[], None] | None = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()
        yield variant
