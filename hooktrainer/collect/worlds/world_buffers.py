"""`WorldBuffers`: the buffers of a rollout of tensor environments, on their device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from tensordict import NestedKey, unravel_key

from ...base.space_parts import Leaf
from ...errors import ConfigError
from ..actors import Actor
from ..buffers import Entries, OutputBuffers, env_first, place_outputs
from .tensor_world import Observations, Outcome


class WorldBuffers:
    """The buffers of a rollout, time first, allocated once.

    ``inputs`` are for each leaf ``time + 1`` rows ``[num_envs, *shape]``: the policy's inputs, and
    last its input of the next rollout. ``following`` holds a batch's ``"next"``.
    """

    send = None

    def __init__(
        self,
        leaves: Sequence[Leaf],
        num_envs: int,
        horizon: int,
        device: torch.device,
        infos: Sequence[str] = (),
    ) -> None:
        self.leaves = tuple(leaves)
        self.device = device
        self.keys: list[NestedKey] = [unravel_key(leaf.key) for leaf in leaves]
        kinds = [torch.from_numpy(np.zeros((), leaf.dtype)).dtype for leaf in leaves]
        self._observation = [
            torch.zeros((horizon + 1, num_envs, *leaf.shape), dtype=kind, device=device)
            for leaf, kind in zip(leaves, kinds, strict=True)
        ]
        self.inputs = [observation.unbind(0) for observation in self._observation]
        reward = torch.zeros(num_envs, device=device)
        self.following = OutputBuffers(num_envs, horizon)
        self.following.allocate(
            dict(zip(self.keys, (rows[0] for rows in self.inputs), strict=True))
            | dict.fromkeys(("terminated", "truncated", "done"), reward.bool())
            | dict.fromkeys(("reward", *infos), reward)
        )
        self._infos = tuple(infos)
        self._has_entries = False  # whether those of `Outcome.entries` have their buffers
        self._starts = {
            key: torch.as_tensor(leaf.start).to(device)
            for key, leaf in zip(self.keys, leaves, strict=True)
            if leaf.start is not None
        }

    def put(self, observation: Observations, row: int) -> None:
        """Write an observation as the policy's input of step ``row``."""
        for rows, value in zip(self.inputs, self.values(observation), strict=True):
            rows[row].copy_(value)

    def write(self, t: int, outcome: Outcome) -> torch.Tensor:
        """Write the result of step ``t``; returns ``done``, bool ``[num_envs]``."""
        self.put(outcome.observation, t + 1)
        ends = ends_of(outcome)
        if outcome.final is not None:
            final = self.values(outcome.final)
        else:  # hidden: an episode's last known observation is the policy's last input
            final = [
                torch.where(ends["done"].view(-1, *[1] * (rows[t].ndim - 1)), rows[t], rows[t + 1])
                for rows in self.inputs
            ]
        written = {**dict(zip(self.keys, final, strict=True)), "reward": outcome.reward, **ends}
        for name in self._infos:
            written[name] = _info(name, outcome.reward, outcome.log)
        if outcome.entries:
            if not self._has_entries:
                self.following.allocate(outcome.entries)
                self._has_entries = True
            written |= outcome.entries
        self.following.write(t, written)
        return ends["done"]

    def values(self, observation: Observations) -> list[torch.Tensor]:
        """The leaves of an observation, in order; discrete ones start at 0."""
        if not self._starts:
            return [observation[key] for key in self.keys]
        return [observation[key] - self._starts.get(key, 0) for key in self.keys]

    def rows(self, span: slice, sample: Mapping[NestedKey, torch.Tensor]) -> Rows:
        """The buffers of the steps ``span``; ``sample`` holds those of the policy's outputs."""
        after = slice(span.start + 1, span.stop + 1)
        observation = [observation[after] for observation in self._observation]
        return Rows(observation, self.following.rows(span), sample)

    def carry(self) -> None:
        """Copy the last observations to the first row of the next rollout."""
        for observation in self._observation:
            observation[0].copy_(observation[-1])

    def observations(self) -> Entries:
        """What was observed before the steps, ``[num_envs, time, ...]``."""
        pairs = zip(self.keys, self._observation, strict=True)
        return {key: env_first(before[:-1]) for key, before in pairs}


def ends_of(outcome: Outcome) -> dict[NestedKey, torch.Tensor]:
    """The flags of a step by key, bool ``[num_envs]``."""
    terminated, truncated = outcome.terminated, outcome.truncated
    done = torch.logical_or(terminated, truncated)
    return {"terminated": terminated, "truncated": truncated, "done": done}


def _info(name: str, like: torch.Tensor, log: Mapping[str, torch.Tensor] | None) -> torch.Tensor:
    value = None if log is None else log.get(name)
    if value is None:
        return torch.full_like(like, float("nan"))
    if value.numel() != like.numel():
        raise ConfigError(
            f"info_keys: the simulator logs {name!r} with the shape {list(value.shape)}, not one "
            f"number for each of {like.numel()} environments: leave the key out."
        )
    return value.reshape(like.shape)


class Rows(NamedTuple):
    """Buffers of several steps, ``[steps, num_envs, ...]`` each.

    By leaf the observations to act on next; by key a batch's ``"next"``, and the policy's outputs.
    """

    observation: list[torch.Tensor]
    following: Mapping[NestedKey, torch.Tensor]
    sample: Mapping[NestedKey, torch.Tensor]


Parts: TypeAlias = tuple[tuple[Entries, Entries, Entries], torch.Tensor, torch.Tensor]
"""What `as_batch` takes; reward sums and lengths of the running episodes."""


class BatchParts:
    """Makes the entries of a batch, ``[num_envs, time, ...]``: fresh tensors, not views."""

    def __init__(self, actor: Actor, buffers: WorldBuffers) -> None:
        self._actor, self._buffers = actor, buffers

    def __call__(self, returns: torch.Tensor, lengths: torch.Tensor) -> Parts:
        """Make them."""
        buffers = self._buffers
        root, following = place_outputs(self._actor.tensors(), buffers.device)
        root |= buffers.observations()
        given: Entries = buffers.following.tensors()
        following |= {key: given.pop(key) for key in buffers.keys}
        rewards, done = given["reward"].transpose(0, 1), given["done"].transpose(0, 1)
        returns = _sums_of_episodes(rewards.to(returns.dtype), done, returns)
        lengths = _sums_of_episodes(torch.ones_like(done, dtype=lengths.dtype), done, lengths)
        given = {  # of several agents, the environment gives its own "episode_reward"
            "episode_reward": env_first(returns.to(rewards.dtype)),
            "step_count": env_first(lengths),
            **given,
        }
        given = {key: value.unsqueeze(-1) for key, value in given.items()}
        last = done[-1]
        rest = returns[-1].masked_fill(last, 0.0), lengths[-1].masked_fill(last, 0)
        return (root, following, given), *rest


def _sums_of_episodes(
    values: torch.Tensor, done: torch.Tensor, before: torch.Tensor
) -> torch.Tensor:
    """Sums of ``values`` ``[time, num_envs]`` from the start of each episode.

    By doubling (Hillis and Steele, 1986, Data parallel algorithms): after each pass a row is the
    sum of the last ``span`` values, or of those since the start of the episode.
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
