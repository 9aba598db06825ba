"""What the losses of actors with Q-functions share: reading batches, ensembles, Bellman targets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import nn

from ..base.checks import check_fraction
from ..base.tensordicts import put
from ..errors import ConfigError
from ..networks.inputs import fresh_copy
from .common import (
    Entries,
    distance,
    evaluate,
    evaluate_frozen,
    next_key,
    reduction_function,
    this_key,
    weighted,
)
from .sequences import ReplayLoss


class ActorCriticLoss(ReplayLoss):
    """A loss of one actor and one or several Q-functions Q(s, a), trained off-policy.

    A memory, which all of them share, learns from the Q-functions alone: the actor reads its
    features without passing a gradient on (Yarats et al., 2021, arXiv:1910.01741).

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
    def _networks(self) -> Sequence[Any]:
        return [self.actor_network, *self._critics]

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries it reads, but for the optional one."""
        keys = self.tensor_keys
        return [*self._reads(keys.action), next_key(keys.reward), next_key(keys.terminated)]

    def _write(self, out: dict[str, torch.Tensor], tensordict: TensorDictBase) -> None:
        priority = self._priority(out.pop("td_error"), tensordict)
        put(tensordict, self.tensor_keys.priority, priority.reshape(tensordict.shape))

    def _actor_inputs(
        self, entries: Entries, at: Callable[[NestedKey], NestedKey] = this_key
    ) -> list[torch.Tensor]:
        return [entries[at(key)] for key in self.actor_network.in_keys]

    def _actor_reads(
        self, entries: Entries, at: Callable[[NestedKey], NestedKey] = this_key, actor: Any = None
    ) -> tuple[list[torch.Tensor], dict[str, Any]]:
        """What an actor, by default the one that is trained, is called with."""
        inputs, known = self._called_with(actor or self.actor_network, entries, at)
        return inputs, {name: features.detach() for name, features in known.items()}

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
            inputs, known = self._called_with(network, entries, at, {keys.action: action})
            if frozen:
                known = {name: features.detach() for name, features in known.items()}
            value = evaluated(network, inputs, keys.state_action_value, self._batch_dims, **known)
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
