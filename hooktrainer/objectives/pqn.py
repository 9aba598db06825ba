"""Q(lambda) returns, and the loss of parallelized Q-learning (Gallici et al., 2024)."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NestedKey
from torch import Tensor, nn

from ..networks.encoders import named
from .common import DISTANCES, Entries, Loss, evaluate
from .gae import GAE, discounted_suffix_sums


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
