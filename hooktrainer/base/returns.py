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
    if not rewards.is_cpu:
        return _by_doubling(rewards, before, gamma, done)
    seen = []
    for step in range(rewards.shape[1]):
        before = before * gamma + rewards[:, step]
        seen.append(before)
        if done is not None:
            before = torch.where(done[:, step], 0.0, before)
    return torch.stack(seen), before


def _by_doubling(
    rewards: torch.Tensor, before: torch.Tensor, gamma: float, done: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same but for rounding, in ``log2(time)`` steps, without a Python loop over time.

    Doubling (Hillis and Steele, 1986, Data parallel algorithms): after each step a row holds the
    last ``span`` terms of its sum, and its discount the product of as many discounts.
    """
    sums = rewards.T.clone()
    discount = torch.full_like(sums, gamma)
    if done is not None:
        discount[1:] = discount[1:].where(~done.T[:-1], 0.0)
    sums[0] += gamma * before
    span = 1
    while span < len(sums):
        longer = torch.addcmul(sums[span:], discount[span:], sums[:-span])
        sums = torch.cat([sums[:span], longer])
        discount = torch.cat([discount[:span], discount[span:] * discount[:-span]])
        span *= 2
    after = sums[-1]
    return sums, after if done is None else after.where(~done[:, -1], 0.0)
