"""Discounted returns as they run, from step to step and from batch to batch."""

from __future__ import annotations

import torch


def running_returns(
    rewards: torch.Tensor, before: torch.Tensor, gamma: float, done: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The discounted sum of all rewards so far, after each step.

    Args:
        rewards: ``[num_envs, time]``.
        before: The sums before the first step, ``[num_envs]``.
        gamma: Discount factor.
        done: Behind which steps a sum begins anew, bool ``[num_envs, time]``; ``None``: none.

    Returns:
        The sums, time first, ``[time, num_envs]``; and those that the next step adds to,
        ``[num_envs]``.
    """
    seen = []
    for step in range(rewards.shape[1]):
        before = before * gamma + rewards[:, step]
        seen.append(before)
        if done is not None:
            before = torch.where(done[:, step], 0.0, before)
    return torch.stack(seen), before
