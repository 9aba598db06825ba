"""Deep deterministic policy gradient (Lillicrap et al., 2015, arXiv:1509.02971)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .actor_critic import ActorCriticLoss
from .common import Entries, next_key
from .targets import target_copies


class DDPGLoss(ActorCriticLoss):
    """The DDPG loss, with the values and gradients of TorchRL's.

    Reads the networks' inputs, now and under ``"next"``, ``"action"``, ``("next", "reward")``,
    ``("next", "terminated")`` and, if it is there, ``"priority_weight"``. Returns ``loss_actor``
    and ``loss_value``, whose sum is minimized (each reaches its own parameters only),
    ``pred_value`` and ``target_value``, means over the batch. Writes ``"td_error"``, squared errors
    ``[*batch]``.

    Args:
        actor_network: The policy, a `DeterministicPolicy` or any module with its ``evaluate``.
        value_network: A module that writes ``"state_action_value"``.
        gamma: Discount factor.
        loss_function: ``"l1"``, ``"l2"`` or ``"smooth_l1"``.
        delay_actor: Whether the target's action comes from a delayed copy of the actor, to be moved
            by `SoftUpdate`; the paper's does.
        delay_value: Whether targets come from a delayed copy of the Q-function, likewise.
        reduction: ``"mean"`` (weighted by the priority weights) or ``"sum"``.
        burn_in: Of networks with a memory, see `ReplayLoss`.

    Raises:
        ConfigError: If an argument cannot work.
    """

    value_network: Any
    target_actor_network: Any
    target_value_network: Any

    def __init__(
        self,
        actor_network: nn.Module,
        value_network: nn.Module,
        *,
        gamma: float = 0.99,
        loss_function: str = "l2",
        delay_actor: bool = False,
        delay_value: bool = True,
        reduction: str = "mean",
        burn_in: int = 0,
    ) -> None:
        super().__init__(actor_network, gamma, loss_function, reduction)
        self.value_network = value_network
        self.target_actor_network, self.target_value_network = target_copies(
            actor_network if delay_actor else None, value_network if delay_value else None
        )
        self._use_memory(burn_in)

    @property
    def _critics(self) -> Sequence[Any]:
        return [self.value_network]

    @property
    def _looks_ahead(self) -> bool:
        return self.target_actor_network is None or self.target_value_network is None

    @property
    def out_keys(self) -> list[str]:
        """The losses it returns."""
        return ["loss_actor", "loss_value"]

    def _row_losses(self, entries: Entries) -> dict[str, torch.Tensor]:
        inputs, known = self._actor_reads(entries)
        action = self.actor_network.evaluate(*inputs, **known)
        gain = self._values(self._critics, entries, action, frozen=True)[0]
        with torch.no_grad():
            target = self._target(entries, self._next_value(entries))
        values = self._values(self._critics, entries, entries[self.tensor_keys.action])
        now = values.detach()
        return {
            "loss_actor": self._reduce(-gain, entries),
            "loss_value": self._reduce(self._errors(values, target), entries),
            "pred_value": now.mean(),
            "target_value": target.mean(),
            "td_error": (now[0] - target).square(),
        }

    def _next_value(self, entries: Entries) -> torch.Tensor:
        """The value of the next states, ``[batch]``."""
        actor, network = self.target_actor_network, self.target_value_network
        actor = self.actor_network if actor is None else actor
        network = self.value_network if network is None else network
        inputs, known = self._actor_reads(entries, next_key, actor)
        action = actor.evaluate(*inputs, **known)
        return self._values([network], entries, action, next_key)[0]
