"""Deep Q-learning (Mnih et al., 2015), double (van Hasselt et al., 2016, arXiv:1509.06461)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import ConfigError
from .common import Entries, KeyOf, next_key, this_key
from .sequences import ReplayLoss
from .targets import target_copy


class DQNLoss(ReplayLoss):
    """The DQN loss, with the values and gradients of TorchRL's.

    Actions are indices ``[*batch]``, or one-hot. Returns ``loss``, and writes ``"td_error"``,
    squared errors ``[*batch, 1]``. What it reads, and further arguments, are those of `ReplayLoss`.

    Args:
        value_network: A `QNetwork`, or a TensorDict module that writes ``"action_value"``.
        delay_value: Whether targets use a delayed copy, moved by `SoftUpdate` or `HardUpdate`.
        double_dqn: Whether the trained network chooses the next action, and the target values it.

    Examples:
        >>> loss = DQNLoss(QNetwork(mlp(4, 2)), double_dqn=True)
        >>> updater = HardUpdate(loss, value_network_update_interval=500)
    """

    out_keys = ("loss",)
    _error_dims = (1,)
    _more_keys: ClassVar = {"action_value": "action_value"}
    value_network: Any
    target_value_network: Any

    def __init__(
        self,
        value_network: nn.Module,
        *,
        loss_function: str = "l2",
        delay_value: bool = True,
        double_dqn: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(loss_function=loss_function, **options)
        if double_dqn and not delay_value:
            raise ConfigError("DQNLoss(double_dqn=True) needs delay_value=True: a target network.")
        self.value_network = value_network
        self.target_value_network = target_copy(value_network) if delay_value else None
        self.double_dqn = double_dqn
        self._use_memory()

    @property
    def _networks(self) -> Sequence[Any]:
        return [self.value_network]

    def _row_losses(self, entries: Entries) -> dict[str, Tensor]:
        action_value = self._action_value(self.value_network, entries)
        action = entries[self.tensor_keys.action]
        if action.shape == action_value.shape:  # one-hot
            action = action.to(torch.uint8).argmax(-1)
        value = action_value.gather(-1, action.unsqueeze(-1)).reshape(-1)
        with torch.no_grad():
            target = self._target(entries)
            td_error = (value - target).square()
        if self.tensor_keys.priority_weight in entries:
            loss = self._reduce(self._distance(value, target, reduction="none"), entries)
        else:
            loss = self._distance(value, target)
        return {"loss": loss, "td_error": td_error}

    def _target(self, entries: Entries) -> Tensor:
        target = self.target_value_network
        delayed = self.value_network if target is None else target
        next_value = self._action_value(delayed, entries, next_key)
        if self.double_dqn:
            chosen = self._action_value(self.value_network, entries, next_key).argmax(-1, True)
            best = next_value.gather(-1, chosen)
        else:
            best = next_value.amax(-1)
        return self._one_step_target(entries, best.reshape(-1))

    def _action_value(self, network: Any, entries: Entries, at: KeyOf = this_key) -> Tensor:
        return self._output(network, entries, self.tensor_keys.action_value, at)
