"""Implicit Q-learning (Kostrikov et al., 2021, arXiv:2110.06169)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigError
from .actor_critic import ActorCriticLoss
from .common import Entries, KeyOf, as_tensordict, next_key, this_key

_MOST_WEIGHT = 100.0  # bound of exp(temperature * advantage), from the paper's code


class IQLLoss(ActorCriticLoss):
    """The IQL loss, with the values and gradients of TorchRL's.

    A state's value is an expectile of the values of the data's actions, and the actor imitates
    these actions, weighted by their advantage. No action outside the data is evaluated, so it suits
    data sets.

    Returns ``loss_actor``, ``loss_qvalue`` and ``loss_value``, which train separate parameters, and
    ``entropy``, minus the mean log-probability of the data. Writes ``"td_error"``, squared errors
    ``[*batch]``. What it reads, and further arguments, are those of `ReplayLoss`.

    Args:
        actor_network: The policy, a `DiagonalGaussianPolicy` or any module with its
            ``log_prob_and_entropy`` or TorchRL's ``get_dist``.
        qvalue_network: Modules that write ``"state_action_value"``; or one, which is copied with
            new weights, ``num_qvalue_nets=2`` in all.
        value_network: A module that writes ``"state_value"``.
        temperature: The paper's inverse temperature, per unit of return; 0 for equal weights.
        expectile: The expectile of a state's value, in (0, 1): 0.5 is the mean, near 1 the maximum.
    """

    out_keys = ("loss_actor", "loss_qvalue", "loss_value")
    value_network: Any
    _more_keys = ActorCriticLoss._more_keys | {"value": "state_value"}

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        value_network: nn.Module,
        *,
        temperature: float = 1.0,
        expectile: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **options)
        if not 0 < expectile < 1 or temperature < 0:
            raise ConfigError(
                f"IQLLoss: {expectile=} must be between 0 and 1, {temperature=} not negative."
            )
        self.value_network = value_network
        self.temperature = temperature
        self.expectile = expectile

    def _row_losses(self, entries: Entries) -> dict[str, Tensor]:
        action = entries[self.tensor_keys.action]
        with torch.no_grad():
            best = self._values(self.target_qvalue_network, entries, action).amin(0)
            target = self._one_step_target(entries, self._state_value(entries, next_key))
        state_value = self._state_value(entries)
        advantage = best - state_value
        weight = torch.where(advantage > 0, self.expectile, 1 - self.expectile)

        imitation = (advantage.detach() * self.temperature).exp().clamp_max(_MOST_WEIGHT)
        log_prob = self._log_prob(entries, action)

        values = self._values(self.qvalue_network, entries, action)
        return {
            "loss_actor": self._reduce(-imitation * log_prob, entries),
            "loss_qvalue": self._reduce(self._errors(values, target), entries),
            "loss_value": self._reduce(weight * advantage.square(), entries),
            "entropy": -log_prob.detach().mean(),
            "td_error": (values.detach() - target).square().amax(0),
        }

    def _state_value(self, entries: Entries, at: KeyOf = this_key) -> Tensor:
        return self._output(self.value_network, entries, self.tensor_keys.value, at).reshape(-1)

    def _log_prob(self, entries: Entries, action: Tensor) -> Tensor:
        actor, (inputs, _) = self.actor_network, self._called_with(self.actor_network, entries)
        if hasattr(actor, "log_prob_and_entropy"):
            return actor.log_prob_and_entropy(inputs, action)[0].reshape(-1)
        batch = as_tensordict(actor.in_keys, inputs, self._batch_dims)
        return actor.get_dist(batch).log_prob(action).reshape(-1)


class DiscreteIQLLoss(IQLLoss):
    """The IQL loss for one discrete action, with the values and gradients of TorchRL's.

    Args:
        actor_network: The policy, a `CategoricalPolicy`.
        qvalue_network: As for `IQLLoss`, but `QNetwork` in place of values of actions.
        value_network: As for `IQLLoss`.
        **options: Further arguments of `IQLLoss`.
    """

    def _values(
        self,
        networks: Iterable[Any],
        entries: Entries,
        action: Tensor,
        at: KeyOf = this_key,
        frozen: bool = False,
    ) -> Tensor:
        chosen = action.reshape(-1, 1)
        values = (self._output(each, entries, "action_value", at, {}, frozen) for each in networks)
        return torch.stack([value.gather(-1, chosen).reshape(-1) for value in values])
