"""V-trace: advantages of batches that an older policy collected (arXiv:1802.01561)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn

from ..base.checks import check_positive
from .common import as_tensordict, require
from .gae import GAE, discounted_suffix_sums


def vtrace_estimate(
    gamma: float,
    lmbda: float,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor,
    log_ratio: Tensor,
    *,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    time_dim: int = -2,
) -> tuple[Tensor, Tensor]:
    """Compute the advantages and value targets of V-trace (Espeholt et al., 2018, section 4.1).

    With ``rho_t = min(rho_clip, ratio_t)``, ``c_t = lmbda * min(c_clip, ratio_t)`` and the errors
    ``delta_t = r_t + gamma * V(s_{t+1}) - V(s_t)``, the targets are
    ``v_t = V(s_t) + rho_t * delta_t + gamma * c_t * (v_{t+1} - V(s_{t+1}))``, and the advantages
    ``r_t + gamma * v_{t+1} - V(s_t)``, which the paper multiplies by ``rho_t``. Ends are treated as
    by `generalized_advantage_estimate`, which gives the same targets where all ratios are 1.

    Args:
        gamma: Discount factor.
        lmbda: Factor of ``c_t``; 1 in the paper.
        state_value: ``V(s_t)``, floating point.
        next_state_value: ``V(s_{t+1})``, of the observation before any reset.
        reward: ``r_t``.
        done: Whether the episode ended with this step, bool.
        terminated: Whether it ended in a terminal state, bool.
        log_ratio: Log-probability of the action under the current policy less the recorded one.
        rho_clip: Bound of the weights of errors. It decides which policy's value is the limit.
        c_clip: Bound of the weights that carry later errors back. It decides the variance.
        time_dim: The dimension of time. All tensors have one shape, such as ``[*batch, time, 1]``.

    Returns:
        Advantages, not multiplied by ``rho_t``, and value targets, shaped as the values.
    """
    ratio = log_ratio.exp()
    bootstrap = torch.where(terminated, 0.0, next_state_value)
    delta = ratio.clamp_max(rho_clip) * (reward + gamma * bootstrap - state_value)
    carried = (~done).to(delta.dtype) * (gamma * lmbda) * ratio.clamp_max(c_clip)
    target = state_value + discounted_suffix_sums(delta, carried, time_dim)
    # Past an end, the next row belongs to another episode.
    last = target.shape[time_dim] - 1
    later = target.narrow(time_dim, 1, last)
    following = torch.cat([later, bootstrap.narrow(time_dim, last, 1)], time_dim)
    following = torch.where(done, bootstrap, following)
    return reward + gamma * following - state_value, target


class VTrace(GAE):
    """Writes the advantages and value targets of V-trace, for policies that lag behind.

    It weights each step by the ratio of the action's probability now to ``"action_log_prob"``, as
    the collecting policy recorded it. Use it in place of `GAE` where batches are collected ahead.

    Args:
        gamma, value_network, average_gae: As for `GAE`.
        lmbda: Factor of the weights that carry errors back; 1 in the paper.
        actor_network: The policy, as for `ClipPPOLoss`.
        rho_clip, c_clip: Bounds of the weights, as for `vtrace_estimate`.
        weighted: Whether advantages are multiplied by ``min(rho_clip, ratio)``, as in the paper. A
            loss that has the ratio itself, such as `ClipPPOLoss`, takes ``False``.

    Examples:
        >>> vtrace = VTrace(gamma=0.99, value_network=critic, actor_network=actor)
        >>> ValueEstimatorHook(vtrace).register(trainer)
    """

    actor_network: Any

    def __init__(
        self,
        *,
        gamma: float,
        lmbda: float = 1.0,
        value_network: nn.Module,
        actor_network: nn.Module,
        rho_clip: float = 1.0,
        c_clip: float = 1.0,
        weighted: bool = False,
        average_gae: bool = False,
    ) -> None:
        super().__init__(
            gamma=gamma, lmbda=lmbda, value_network=value_network, average_gae=average_gae
        )
        check_positive("rho_clip", rho_clip)
        check_positive("c_clip", c_clip)
        vars(self.tensor_keys).update(action="action", sample_log_prob="action_log_prob")
        self.__dict__["actor_network"] = actor_network  # not a submodule, as the value network
        self.rho_clip, self.c_clip = rho_clip, c_clip
        self.weighted = weighted

    @property
    def in_keys(self) -> list[object]:
        keys = self.tensor_keys
        read = [*self.actor_network.in_keys, keys.action, keys.sample_log_prob]
        return list(dict.fromkeys([*super().in_keys, *read]))

    def _weights(self, tensordict: TensorDictBase) -> Sequence[Tensor]:
        """Return the log-ratios ``[*batch, time, 1]``."""
        keys, actor, dims = self.tensor_keys, self.actor_network, tensordict.ndim
        recorded = require(tensordict, keys.sample_log_prob, self)
        names = [*actor.in_keys, keys.action]
        *inputs, action = (require(tensordict, key, self).flatten(0, dims - 1) for key in names)
        if hasattr(actor, "remember"):  # of hooktrainer.networks; hidden states are of each step
            parameters, _ = actor.remember(*inputs)
            log_prob, _ = actor.distribution.log_prob_and_entropy(parameters, action)
        else:
            log_prob = actor.get_dist(as_tensordict(actor.in_keys, inputs)).log_prob(action)
        return [(log_prob.view(recorded.shape) - recorded).unsqueeze(-1)]

    def _estimate(self, *entries: Tensor, time_dim: int) -> tuple[Tensor, Tensor]:
        advantage, target = vtrace_estimate(
            self.gamma,
            self.lmbda,
            *entries,
            rho_clip=self.rho_clip,
            c_clip=self.c_clip,
            time_dim=time_dim,
        )
        if self.weighted:
            advantage = advantage * entries[-1].exp().clamp_max(self.rho_clip)
        return advantage, target
