"""`WorldBuffers`: the buffers of a rollout of tensor environments, on their device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from tensordict import NestedKey, TensorDict, unravel_key

from ...base.space_parts import Leaf
from ...base.tensordicts import tensordict_of
from ...errors import ConfigError
from ..actors import Actor, WarmUp
from ..buffers import env_first
from .tensor_world import Observations, Outcome


class WorldBuffers:
    """The buffers of a rollout, time first, allocated once.

    ``reward``, ``terminated``, ``truncated``, ``done`` and each ``info`` are ``[time, num_envs]``.
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
        self.info = {name: torch.zeros(shape, device=device) for name in infos}
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

    def put(self, observation: Observations, row: int = 0) -> None:
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
        for name, values in self.info.items():
            _write_info(name, values[t], outcome.log)
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

    def now(self) -> list[torch.Tensor]:
        """Copies of the last observations."""
        return [observation[-1].clone() for observation in self._observation]

    def restore(self, rows: Sequence[torch.Tensor]) -> None:
        """Write what `now` returned."""
        for observation, row in zip(self._observation, rows, strict=True):
            observation[-1].copy_(row)

    def observations(self) -> tuple[dict[NestedKey, torch.Tensor], dict[NestedKey, torch.Tensor]]:
        """Fresh ``[num_envs, time, ...]`` tensors: observations before and after the steps."""
        before = {k: env_first(x[:-1]) for k, x in zip(self.keys, self._observation, strict=True)}
        after = {k: env_first(x) for k, x in zip(self.keys, self._after, strict=True)}
        return before, after


def _write_info(name: str, row: torch.Tensor, log: Mapping[str, torch.Tensor] | None) -> None:
    value = None if log is None else log.get(name)
    if value is None:
        row.fill_(float("nan"))
        return
    if value.numel() != row.numel():
        raise ConfigError(
            f"info_keys: the simulator logs {name!r} with the shape {list(value.shape)}, not one "
            f"number for each of {row.numel()} environments: leave the key out; the log is among "
            "the metrics anyway."
        )
    row.copy_(value.reshape(row.shape))


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


Entries: TypeAlias = dict[NestedKey, Any]
Parts: TypeAlias = tuple[Entries, Entries, torch.Tensor, torch.Tensor]
"""Entries of a batch and of its ``"next"``; reward sums and lengths of the running episodes."""
HIDDEN = ("collector", "final_hidden")
"""Marks episode ends whose final observation is unknown."""


class BatchParts:
    """Makes the entries of a batch, ``[num_envs, time, ...]``: fresh tensors, not views."""

    def __init__(self, actor: Actor | WarmUp, buffers: WorldBuffers) -> None:
        self._actor, self._buffers = actor, buffers

    def __call__(self, returns: torch.Tensor, lengths: torch.Tensor) -> Parts:
        """Make them.

        Args:
            returns: Sums of rewards of the running episodes before the rollout, ``[num_envs]``.
            lengths: Their steps, int64 ``[num_envs]``.

        Raises:
            ConfigError: If the policy and the environment's log write the same entry.
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
    """Build a batch; ``hidden`` marks final observations as unknown."""
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
