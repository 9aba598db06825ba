"""Deep Q-learning, from a replay buffer (`DQNLoss`) and without one (`PQNLoss`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from tensordict import NestedKey
from torch import Tensor, nn

from ..base.checks import named
from ..errors import ConfigError
from .common import DISTANCES, Entries, KeyOf, Loss, evaluate, next_key, this_key
from .gae import GAE, discounted_suffix_sums
from .sequences import ReplayLoss
from .targets import target_copy


class DQNLoss(ReplayLoss):
    """The DQN loss (Mnih et al., 2015), with the values and gradients of TorchRL's.

    Actions are indices ``[*batch]``, or one-hot. Returns ``loss``, and writes ``"td_error"``,
    squared errors ``[*batch, 1]``. What it reads, and further arguments, are those of `ReplayLoss`.

    Args:
        value_network: A `QNetwork`, or a TensorDict module that writes ``"action_value"``.
        delay_value: Whether targets use a delayed copy, moved by `SoftUpdate` or `HardUpdate`.
        double_dqn: Whether the trained network chooses the next action, and the target values it
            (van Hasselt et al., 2016, arXiv:1509.06461).
        rescale_values: Whether the network learns values rescaled by ``sign(x) * (sqrt(abs(x) + 1)
            - 1) + 0.001 * x``, so that large returns need no other scale (Pohlen et al., 2018,
            arXiv:1805.11593; the 0.001 is that of R2D2).

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


# -- Q(lambda) returns, and the loss of parallelized Q-learning.


def q_lambda_return(
    gamma: float,
    lmbda: float,
    next_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor,
    *,
    time_dim: int = -2,
) -> Tensor:
    """Compute the Q(lambda) returns of trajectories (Peng and Williams, 1994).

    ``R_t = r_t + gamma * ((1 - lmbda) * V(s_{t+1}) + lmbda * R_{t+1})``, where ``V`` is the value
    of the best action. Where an episode or the batch ends, ``R_{t+1}`` is ``V(s_{t+1})``, and 0
    after a terminal state. Returns are not cut at exploratory actions.

    Args:
        gamma: Discount factor.
        lmbda: 0 for one-step targets, 1 for Monte-Carlo returns.
        next_value: ``V(s_{t+1})``, of the observation before any reset, floating point.
        reward: ``r_t``.
        done: Whether the episode ended with this step, bool.
        terminated: Whether it ended in a terminal state, bool.
        time_dim: The dimension of time. All tensors have one shape, such as ``[*batch, time, 1]``.

    Returns:
        The returns, shaped as the values.
    """
    last = torch.zeros_like(done)
    last.narrow(time_dim, done.shape[time_dim] - 1, 1).fill_(True)
    carried = (~(done | last)).to(next_value.dtype) * lmbda
    bootstrap = torch.where(terminated, 0.0, next_value)
    return discounted_suffix_sums(
        reward + gamma * (1 - carried) * bootstrap, gamma * carried, time_dim
    )


class QLambda(GAE):
    """Writes Q(lambda) returns into a batch, as ``"value_target"``, see `q_lambda_return`.

    The action values are written as ``"action_value"``; ``"advantage"`` is the return less the
    greatest of them.

    Args:
        gamma, lmbda: As for `q_lambda_return`.
        value_network: A `QNetwork`, or a TensorDict module that writes ``"action_value"``.

    Examples:
        >>> q_lambda = QLambda(gamma=0.99, lmbda=0.65, value_network=QNetwork(mlp(4, 2)))
        >>> ValueEstimatorHook(q_lambda).register(trainer)
    """

    def __init__(self, *, gamma: float, lmbda: float, value_network: nn.Module) -> None:
        super().__init__(gamma=gamma, lmbda=lmbda, value_network=value_network)
        self.tensor_keys.value = "action_value"

    def _estimate(self, *entries: Tensor, time_dim: int) -> tuple[Tensor, Tensor]:
        value, next_value, *ends = entries
        best, next_best = (each.amax(-1, keepdim=True) for each in (value, next_value))
        target = q_lambda_return(self.gamma, self.lmbda, next_best, *ends, time_dim=time_dim)
        return target - best, target


class PQNLoss(Loss):
    """The loss of parallelized Q-learning (Gallici et al., 2024, arXiv:2407.04811).

    Returns ``loss``, the distance of the values of the actions to ``"value_target"``, and
    ``action_value``, their mean. There is no target network. A batch is ``[*batch]``; with a memory
    it is ``[batch, time]``.

    Args:
        value_network: A `QNetwork`, or a TensorDict module that writes ``"action_value"``.
        loss_function: ``"l1"``, ``"l2"`` or ``"smooth_l1"``.
    """

    out_keys = ("loss",)
    hint = "Q(lambda) returns are written by QLambda."
    value_network: Any

    def __init__(self, value_network: nn.Module, *, loss_function: str = "l2") -> None:
        super().__init__(action="action", action_value="action_value", value_target="value_target")
        self.value_network = value_network
        self._distance = named("loss function", loss_function, DISTANCES)

    @property
    def in_keys(self) -> list[NestedKey]:
        keys = self.tensor_keys
        return [*self.value_network.in_keys, keys.action, keys.value_target]

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        keys, network = self.tensor_keys, self.value_network
        inputs = [entries[key] for key in network.in_keys]
        values = evaluate(network, inputs, keys.action_value, self._batch_dims)
        action = entries[keys.action].unsqueeze(-1)
        value = values.gather(-1, action).reshape(-1)
        loss = self._distance(value, entries[keys.value_target].reshape(-1))
        return {"loss": loss, "action_value": value.detach().mean()}
