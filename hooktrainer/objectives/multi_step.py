"""N-step returns: discounted sums of the next rewards (Watkins, 1989; Sutton and Barto, 2018)."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from torch import Tensor

STEPS = "steps_to_next_obs"
"""The entry with the number of steps of a transition, ``[*batch, 1]``, as in TorchRL."""


def multi_step_return(
    reward: Tensor, ends: Tensor, n_steps: int, gamma: float
) -> tuple[Tensor, Tensor]:
    """Sum the discounted rewards of up to ``n_steps`` steps, ``sum_k gamma**k * r_{t+k}``.

    Args:
        reward: ``[*batch, time]``, floating point.
        ends: Steps after which no sum continues, such as the last of an episode, bool ``[*batch,
            time]``.
        n_steps: Number of rewards in a sum; fewer before an end and before the end of time.
        gamma: Discount factor.

    Returns:
        The sums, and the number of rewards in each, int64; ``[*batch, time]`` both.
    """
    total, steps = reward.clone(), torch.ones_like(ends, dtype=torch.int64)
    goes_on = torch.ones_like(ends)  # the sum that began a number of steps ago
    for step in range(1, min(n_steps, reward.shape[-1])):
        goes_on = goes_on[..., :-1] & ~ends[..., step - 1 : -1]
        later = torch.where(goes_on, reward[..., step:], 0.0)
        total[..., :-step] += gamma**step * later
        steps[..., :-step] += goes_on
    return total, steps


def multi_step_rows(
    rows: TensorDictBase, following: TensorDictBase, total: Tensor, number: Tensor
) -> TensorDictBase:
    """Make transitions of several steps of those that begin them.

    Args:
        rows: The first steps, ``[n]``, which are completed in place.
        following: ``"next"`` of the last steps, ``[n]``.
        total: Sums of the rewards, by `multi_step_return`, ``[n]``.
        number: Number of rewards in each, int64 ``[n]``.
    """
    rows["next"] = following
    rows["next", "reward"] = total.reshape(following["reward"].shape)
    return rows.set(STEPS, number.unsqueeze(-1))
