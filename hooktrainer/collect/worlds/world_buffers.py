"""`WorldBuffers`: the buffers of a rollout of tensor environments, on their device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from tensordict import NestedKey, unravel_key

from ...base.space_parts import Leaf
from ...errors import ConfigError
from ..actors import Actor, WarmUp
from ..buffers import Entries, OutputBuffers, env_first, place_outputs
from .tensor_world import Observations, Outcome


class WorldBuffers:
    """The buffers of a rollout, time first, allocated once.

    ``reward``, ``terminated``, ``truncated`` and ``done`` are ``[time, num_envs]``.
    ``inputs`` are for each leaf ``time + 1`` rows ``[num_envs, *shape]``: the policy's inputs, and
    last its input of the next rollout.
    """

    def __init__(
        self,
        leaves: Sequence[Leaf],
        num_envs: int,
        horizon: int,
        device: torch.device,
        infos: Sequence[str] = (),
    ) -> None:
        self.leaves = tuple(leaves)
        self.keys: list[NestedKey] = [unravel_key(leaf.key) for leaf in leaves]
        shape = (horizon, num_envs)
        kinds = [torch.from_numpy(np.zeros((), leaf.dtype)).dtype for leaf in leaves]
        self._observation = [
            torch.zeros((horizon + 1, num_envs, *leaf.shape), dtype=kind, device=device)
            for leaf, kind in zip(leaves, kinds, strict=True)
        ]
        self._after = [torch.zeros_like(observation[1:]) for observation in self._observation]
        self.reward = torch.zeros(shape, device=device)
        self.terminated, self.truncated, self.done = (
            torch.zeros(shape, dtype=torch.bool, device=device) for _ in range(3)
        )
        self.infos = tuple(infos)
        self.entries = OutputBuffers(num_envs, horizon)
        self.entries.allocate(dict.fromkeys(infos, self.reward[0]))  # compiled steps write none
        self._has_entries = False  # whether those of `Outcome.entries` have their buffers
        self._starts = {
            key: torch.as_tensor(leaf.start).to(device)
            for key, leaf in zip(self.keys, leaves, strict=True)
            if leaf.start is not None
        }
        self.inputs = [observation.unbind(0) for observation in self._observation]
        self._afters = [after.unbind(0) for after in self._after]
        self._rows = [
            rows.unbind(0) for rows in (self.reward, self.terminated, self.truncated, self.done)
        ]

    send = None

    def put(self, observation: Observations, row: int) -> None:
        """Write an observation as the policy's input of step ``row``."""
        for rows, value in zip(self.inputs, self.values(observation), strict=True):
            rows[row].copy_(value)

    def write(self, t: int, outcome: Outcome) -> torch.Tensor:
        """Write the result of step ``t``; returns ``done``, bool ``[num_envs]``."""
        reward, terminated, truncated, done = (rows[t] for rows in self._rows)
        reward.copy_(outcome.reward)
        terminated.copy_(outcome.terminated)
        truncated.copy_(outcome.truncated)
        torch.logical_or(terminated, truncated, out=done)
        self.put(outcome.observation, t + 1)
        if outcome.final is not None:
            for afters, value in zip(self._afters, self.values(outcome.final), strict=True):
                afters[t].copy_(value)
        else:  # hidden: an episode's last known observation is the policy's last input
            for afters, rows in zip(self._afters, self.inputs, strict=True):
                ended = done.view(-1, *[1] * (afters[t].ndim - 1))
                torch.where(ended, rows[t], rows[t + 1], out=afters[t])
        entries = {name: _info(name, reward, outcome.log) for name in self.infos}
        if given := outcome.entries:
            if not self._has_entries:
                self.entries.allocate({key: x for key, x in given.items() if key not in entries})
                self._has_entries = True
            entries.update(given)
        self.entries.write(t, entries)
        return done

    def values(self, observation: Observations) -> list[torch.Tensor]:
        """The leaves of an observation, in order; discrete ones start at 0."""
        if not self._starts:
            return [observation[key] for key in self.keys]
        return [
            observation[key] - self._starts[key] if key in self._starts else observation[key]
            for key in self.keys
        ]

    def rows(self, span: slice, sample: Mapping[NestedKey, torch.Tensor]) -> Rows:
        """The buffers of the steps ``span``; ``sample`` holds those of the policy's outputs."""
        after = slice(span.start + 1, span.stop + 1)
        return Rows(
            [observation[after] for observation in self._observation],
            [last[span] for last in self._after],
            self.reward[span],
            self.terminated[span],
            self.truncated[span],
            self.done[span],
            sample,
        )

    def carry(self) -> None:
        """Copy the last observations to the first row of the next rollout."""
        for observation in self._observation:
            observation[0].copy_(observation[-1])

    def observations(self) -> Iterator[tuple[NestedKey, torch.Tensor, torch.Tensor]]:
        """By key, what was observed before and after the steps, ``[num_envs, time, ...]``."""
        for key, before, after in zip(self.keys, self._observation, self._after, strict=True):
            yield key, env_first(before[:-1]), env_first(after)


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

    ``observation`` and ``final`` are lists by leaf; ``sample`` holds the policy's outputs.
    """

    observation: list[torch.Tensor]
    final: list[torch.Tensor]
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    done: torch.Tensor
    sample: Mapping[NestedKey, torch.Tensor]


Parts: TypeAlias = tuple[tuple[Entries, Entries, Entries], torch.Tensor, torch.Tensor]
"""What `as_batch` takes; reward sums and lengths of the running episodes."""


class BatchParts:
    """Makes the entries of a batch, ``[num_envs, time, ...]``: fresh tensors, not views."""

    def __init__(self, actor: Actor | WarmUp, buffers: WorldBuffers) -> None:
        self._actor, self._buffers = actor, buffers

    def __call__(self, returns: torch.Tensor, lengths: torch.Tensor) -> Parts:
        """Make them."""
        buffers = self._buffers
        root, following = place_outputs(self._actor.tensors(), buffers.reward.device)
        for key, before, after in buffers.observations():
            root[key], following[key] = before, after
        rewards, done = buffers.reward, buffers.done
        returns = _sums_of_episodes(rewards.to(returns.dtype), done, returns)
        lengths = _sums_of_episodes(torch.ones_like(done, dtype=lengths.dtype), done, lengths)
        given: Entries = {
            "reward": env_first(rewards),
            "done": env_first(done),
            "terminated": env_first(buffers.terminated),
            "truncated": env_first(buffers.truncated),
            "episode_reward": env_first(returns.to(rewards.dtype)),
            "step_count": env_first(lengths),
        }
        given |= buffers.entries.tensors()
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
