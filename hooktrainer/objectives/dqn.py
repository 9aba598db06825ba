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
        rescale_values: Whether the network learns values rescaled by ``sign(x) * (sqrt(abs(x) + 1)
            - 1) + 0.001 * x``, so that large returns need no other scale (Pohlen et al., 2018,
            arXiv:1805.11593).

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
        rescale_values: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(loss_function=loss_function, **options)
        if double_dqn and not delay_value:
            raise ConfigError("DQNLoss(double_dqn=True) needs delay_value=True: a target network.")
        self.value_network = value_network
        self.target_value_network = target_copy(value_network) if delay_value else None
        self.double_dqn = double_dqn
        self.rescale_values = rescale_values
        self._use_memory()

    @property
    def _networks(self) -> Sequence[Any]:
        return [self.value_network]

    def _row_losses(self, entries: Entries) -> dict[str, Tensor]:
        action_value = self._action_value(self.value_network, entries)
        action = self._action_index(entries, action_value.shape)
        value = action_value.gather(-1, action.unsqueeze(-1)).reshape(-1)
        with torch.no_grad():
            target = self._target(entries)
            td_error = (value - target).square()
        if self.tensor_keys.priority_weight in entries:
            loss = self._reduce(self._distance(value, target, reduction="none"), entries)
        else:
            loss = self._distance(value, target)
        return {"loss": loss, "td_error": td_error, **self._penalty(entries, action_value, value)}

    def _penalty(self, entries: Entries, action_value: Tensor, value: Tensor) -> dict[str, Tensor]:
        """Return further losses, given all values ``[batch, actions]`` and the chosen ones."""
        return {}

    @property
    def _delayed(self) -> Any:
        """The network that values next actions."""
        target = self.target_value_network
        return self.value_network if target is None else target

    def _action_index(self, entries: Entries, shape: torch.Size) -> Tensor:
        """Return the actions as indices; one-hot they have the ``shape`` of action values."""
        action = entries[self.tensor_keys.action]
        return action.to(torch.uint8).argmax(-1) if action.shape == shape else action

    def _target(self, entries: Entries) -> Tensor:
        next_value = self._action_value(self._delayed, entries, next_key)
        if self.double_dqn:
            chosen = self._action_value(self.value_network, entries, next_key).argmax(-1, True)
            best = next_value.gather(-1, chosen)
        else:
            best = next_value.amax(-1)
        return self._one_step_target(entries, best.reshape(-1))

    def _one_step_target(self, entries: Entries, next_value: Tensor) -> Tensor:
        if not self.rescale_values:
            return super()._one_step_target(entries, next_value)
        return rescaled(super()._one_step_target(entries, unscaled(next_value)))

    def _action_value(self, network: Any, entries: Entries, at: KeyOf = this_key) -> Tensor:
        return self._output(network, entries, self.tensor_keys.action_value, at)


_SLOPE = 1e-3  # of the linear part, which makes the function invertible


def rescaled(value: Tensor) -> Tensor:
    """Return ``sign(x) * (sqrt(abs(x) + 1) - 1) + 0.001 * x``."""
    return value.sign() * ((value.abs() + 1).sqrt() - 1) + _SLOPE * value


def unscaled(value: Tensor) -> Tensor:
    """Return the inverse of `rescaled`."""
    root = ((1 + 4 * _SLOPE * (value.abs() + 1 + _SLOPE)).sqrt() - 1) / (2 * _SLOPE)
    return value.sign() * (root.square() - 1)
