"""`BatchParts`: the entries of a batch, of what a rollout of a tensor world wrote."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import torch
from tensordict import NestedKey, TensorDict, unravel_key

from ...base.tensordicts import tensordict_of
from ...errors import ConfigError
from ..buffers import env_first
from .world_buffers import WorldBuffers

Entries: TypeAlias = dict[NestedKey, Any]
Parts: TypeAlias = tuple[Entries, Entries, torch.Tensor, torch.Tensor]
"""Entries of a batch and of its ``"next"``; sums of rewards and steps of the running episodes."""


HIDDEN = ("collector", "final_hidden")
"""Where a batch says at which ends of episodes the final observation is not the true one."""


class Acted(Protocol):
    """What acted in a rollout."""

    def tensors(self) -> dict[NestedKey, torch.Tensor]:
        """What it wrote, ``[num_envs, time, ...]`` each."""


class BatchParts:
    """Makes the entries of a batch, ``[num_envs, time, ...]``: fresh tensors, no views.

    Args:
        actor: Whose actions are among them.
        buffers: What the world wrote.
    """

    def __init__(self, actor: Acted, buffers: WorldBuffers) -> None:
        self._actor, self._buffers = actor, buffers

    def __call__(self, returns: torch.Tensor, lengths: torch.Tensor) -> Parts:
        """Make them.

        Args:
            returns: The sums of rewards of the episodes that ran when the rollout began,
                ``[num_envs]``.
            lengths: Their steps, int64 ``[num_envs]``.

        Raises:
            ConfigError: If the policy and the world's log write the same entry.
        """
        buffers = self._buffers
        device = buffers.reward.device
        root: Entries
        following: Entries
        root, following = buffers.observations()
        for key, tensor in self._actor.tensors().items():
            placed = tensor if tensor.device == device else tensor.to(device)
            if isinstance(key, tuple) and key[0] == "next":
                following[unravel_key(key[1:])] = placed
            else:
                root[key] = placed
        rewards, done = buffers.reward, buffers.done
        returns = _sums_of_episodes(rewards.to(returns.dtype), done, returns)
        lengths = _sums_of_episodes(torch.ones_like(done, dtype=lengths.dtype), done, lengths)
        following["reward"] = env_first(rewards).unsqueeze(-1)
        following["done"] = env_first(done).unsqueeze(-1)
        following["terminated"] = env_first(buffers.terminated).unsqueeze(-1)
        following["truncated"] = env_first(buffers.truncated).unsqueeze(-1)
        following["episode_reward"] = env_first(returns.to(rewards.dtype)).unsqueeze(-1)
        following["step_count"] = env_first(lengths).unsqueeze(-1)
        for name, values in buffers.info.items():
            if name in following:
                raise ConfigError(
                    f"info_keys: the policy writes ('next', {name!r}) already. Let the world call "
                    "it otherwise in its log."
                )
            following[name] = env_first(values).unsqueeze(-1)
        last = done[-1]
        rest = returns[-1].masked_fill(last, 0.0), lengths[-1].masked_fill(last, 0)
        return root, following, *rest


def as_batch(root: Entries, following: Entries, hidden: bool, device: torch.device) -> TensorDict:
    """A batch of its entries.

    Args:
        root: The entries of the batch.
        following: Those of its ``"next"``.
        hidden: Whether the world hides the observations that episodes end with.
        device: Where they are.
    """
    done = following["done"]
    for name in ("done", "terminated", "truncated"):
        root[name] = torch.zeros_like(done)
    size = done.shape[:2]
    if hidden:
        root[HIDDEN] = done.clone()
    root["next"] = tensordict_of(following, size, device)
    return tensordict_of(root, size, device)


def _sums_of_episodes(
    values: torch.Tensor, done: torch.Tensor, before: torch.Tensor
) -> torch.Tensor:
    """Sums of ``values``, ``[time, num_envs]``, from the beginning of each episode on.

    Doubling (Hillis and Steele, 1986, Data parallel algorithms): after each step a row is the sum
    of the last ``span`` values, or of those since the beginning of the episode.

    Args:
        values: What is added up.
        done: Where episodes end, bool, likewise.
        before: The sums of the running episodes so far, ``[num_envs]``.
    """
    sums = values.clone()
    sums[0] += before
    begins = done.roll(1, 0)
    begins[0] = False
    span = 1
    while span < len(sums):
        longer = torch.where(begins[span:], sums[span:], sums[span:] + sums[:-span])
        sums = torch.cat([sums[:span], longer])
        begins = torch.cat([begins[:span], begins[span:] | begins[:-span]])
        span *= 2
    return sums
