"""What the losses of actors with Q-functions share: reading batches, ensembles, Bellman targets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import nn

from ..base.checks import check_fraction
from ..errors import ConfigError
from ..networks.copies import fresh_copy
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

Entries = Mapping[NestedKey, torch.Tensor]


class ActorCriticLoss(Loss):
    """A loss of one actor and one or several Q-functions Q(s, a), trained off-policy.

    Args:
        actor_network: The policy.
        gamma: Discount factor.
        loss_function: Distance of the Q-functions to their target: ``"l1"``, ``"l2"`` or
            ``"smooth_l1"``.
        reduction: ``"mean"`` (weighted by the priority weights) or ``"sum"``.
        **keys: Further keys, beside those every such loss has.
    """

    actor_network: Any

    def __init__(
        self,
        actor_network: nn.Module,
        gamma: float,
        loss_function: str,
        reduction: str,
        **keys: NestedKey,
    ) -> None:
        super().__init__(
            action="action",
            state_action_value="state_action_value",
            reward="reward",
            terminated="terminated",
            priority="td_error",
            priority_weight="priority_weight",
            **keys,
        )
        reduction_function(reduction)
        self.actor_network = actor_network
        self.gamma = check_fraction("gamma", gamma)
        self._reduction = reduction
        self._distance = distance(loss_function)

    @property
    @abstractmethod
    def _critics(self) -> Sequence[Any]:
        """The Q-functions that are trained."""

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries it reads, but for the optional one."""
        keys, states = self.tensor_keys, self.actor_network.in_keys
        of_value = [key for key in self._critics[0].in_keys if key != keys.action]
        following = dict.fromkeys([*states, *of_value])
        read = [*following, keys.action, *map(next_key, following)]
        return [*read, next_key(keys.reward), next_key(keys.terminated)]

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

    def _actor_inputs(
        self, entries: Entries, at: Callable[[NestedKey], NestedKey] = this_key
    ) -> list[torch.Tensor]:
        return [entries[at(key)] for key in self.actor_network.in_keys]

    def _values(
        self,
        networks: Iterable[Any],
        entries: Entries,
        action: torch.Tensor,
        at: Callable[[NestedKey], NestedKey] = this_key,
        frozen: bool = False,
    ) -> torch.Tensor:
        """The value of ``action`` by every network, ``[networks, batch]``.

        Args:
            networks: The Q-functions.
            entries: A batch.
            action: Actions, of the batch's shape.
            at: Which step's states they are taken in.
            frozen: Whether gradients reach the action alone.
        """
        keys = self.tensor_keys
        evaluated = evaluate_frozen if frozen else evaluate
        values = []
        for network in networks:
            inputs = [action if key == keys.action else entries[at(key)] for key in network.in_keys]
            value = evaluated(network, inputs, keys.state_action_value, self._batch_dims)
            values.append(value.reshape(-1))
        return torch.stack(values)

    def _target(self, entries: Entries, next_value: torch.Tensor) -> torch.Tensor:
        """The one-step target ``reward + gamma * next_value``, ``[batch]``."""
        keys = self.tensor_keys
        alive = ~entries[next_key(keys.terminated)].reshape(-1)
        return entries[next_key(keys.reward)].reshape(-1) + self.gamma * next_value * alive

    def _errors(self, values: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Distances of ``values``, ``[networks, batch]``, to the target, added up: ``[batch]``."""
        return self._distance(values, target.expand_as(values), reduction="none").sum(0)

    def _reduce(self, loss: torch.Tensor, entries: Entries) -> torch.Tensor:
        """One number of the losses of a batch."""
        return weighted(loss, entries.get(self.tensor_keys.priority_weight), self._reduction)


def ensemble(network: nn.Module | Sequence[nn.Module], number: int) -> nn.ModuleList:
    """Several Q-functions: those given, or one and copies of it with newly drawn weights.

    Raises:
        ConfigError: If there is none.
    """
    if isinstance(network, nn.Module):
        network = [network, *(fresh_copy(network) for _ in range(number - 1))]
    if not network or number < 1:
        raise ConfigError("there has to be at least one Q-function.")
    return nn.ModuleList(network)
