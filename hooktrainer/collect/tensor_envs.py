"""`TensorEnvs`: a `TensorWorld` as environments that write to the buffers of a rollout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from tensordict import NestedKey

from ..base.space_parts import leaves_of
from ..errors import ConfigError
from .action_format import ActionFormat
from .agent_groups import GroupsFormat
from .batched_env import BatchedEnv, EnvOptions, no_attribute
from .buffers import Buffers
from .worlds.functional_world import select
from .worlds.tensor_world import Observations, Outcome, TensorWorld


class TensorEnvs(BatchedEnv):
    """Environments that are tensors on one device, which no step waits for.

    Attributes:
        world: The environments.
    """

    is_tensors = True

    # A compiled rollout depends on none of these.
    not_in_graphs: ClassVar = frozenset(
        ("_buffers", "_rows", "_logged", "hides_final", "observation_space", "action_space")
    )

    def __init__(self, world: TensorWorld, options: EnvOptions) -> None:
        if options.frame_skip not in (None, world.frame_skip):
            raise ConfigError(
                f"frame_skip={options.frame_skip}: {world.name} counts {world.frame_skip} frames "
                "a step, and actions are not repeated: leave it out."
            )
        if options.reset_options is not None:
            raise ConfigError(f"reset_options: {world.name} takes none: leave them out.")
        self.world = world
        self.name, self.num_envs, self.frame_skip = world.name, world.num_envs, world.frame_skip
        self.device, self.shares = world.device, world.shares
        self.observation_space, self.action_space = world.observation_space, world.action_space
        self.groups = getattr(world, "groups", ())
        self.sets_rng = getattr(world, "sets_rng", False)
        self.lost, self._restores = world.lost, options.restore_episodes
        if not self._restores:
            self.lost = f"{world.name} (restore_episodes=False)"
        if self.groups:
            self.action_format = GroupsFormat(self.groups)
        else:
            self.action_format = ActionFormat(self.action_space, options.categorical, options.clip)
        # Those of several agents are among the entries of an outcome.
        self._info_keys = () if self.groups else options.info_keys
        self.entries = dict.fromkeys(self._info_keys, ((), np.float32))
        start = self.action_format.start
        self._start = None if start is None else torch.as_tensor(start).to(self.device)
        if self.action_format.clips:
            self.action_format.bounds(self.device)
        self._logged: dict[str, list[torch.Tensor]] = {}

    @property
    def episodes(self) -> list[int]:
        return self.world.episodes

    @episodes.setter
    def episodes(self, episodes: list[int]) -> None:
        self.world.episodes = episodes

    def seed(self, seed: int) -> None:
        self.world.seed(seed)

    def prepare(self, horizon: int) -> Buffers:
        leaves = leaves_of(self.observation_space)
        entries, size = self.entries, self.num_envs
        self._buffers = Buffers(leaves, size, horizon, entries, self.device, dense=True)
        self._rows = {key: x.unbind(0) for key, x in self._buffers.following.items()}
        self._keys = list(self._buffers.observation)
        self._starts = {
            key: torch.as_tensor(leaf.start).to(self.device)
            for key, leaf in zip(self._buffers.observation, leaves, strict=True)
            if leaf.start is not None
        }
        return self._buffers

    def reset(self) -> None:
        observation = self.world.reset()
        for key, value in self.values(observation).items():
            if value.shape != (wanted := self._buffers.inputs[key][-1].shape):  # copies broadcast
                raise ConfigError(
                    f"the observation {key!r} of {self.name} has the shape {list(value.shape)}, "
                    f"not {list(wanted)}, which follows from its space. Let both agree."
                )
        self._put(observation, -1)

    def step(self, actions: Any, t: int) -> torch.Tensor:
        outcome = self.world.step(self.to_world(actions))
        self.hides_final = (t > 0 and self.hides_final) or outcome.final is None
        self._put(outcome.observation, t + 1)
        done = torch.logical_or(outcome.terminated, outcome.truncated)
        if outcome.final is not None:
            final = self.values(outcome.final)
        else:  # hidden: an episode's last known observation is the policy's last input
            inputs = self._buffers.inputs.items()
            final = {key: select(done, rows[t], rows[t + 1]) for key, rows in inputs}
        written = {**final, **signals_of(outcome)}
        for name in self._info_keys:
            rest = (outcome.log, "the simulator", self.num_envs, self.device)
            written[name] = info_column(name, *rest)
        for key, value in (outcome.entries or {}).items():
            if key not in self._rows:
                self._buffers.add(key, value)
                self._rows[key] = self._buffers.following[key].unbind(0)
            written[key] = value
        for key, value in written.items():
            self._rows[key][t].copy_(value)
        for name, value in (outcome.log or {}).items():
            self._logged.setdefault(name, []).append(value.float().nanmean())
        return done

    def to_world(self, actions: Any) -> Any:
        """The policy's actions in the form of the action space, on the device."""
        if isinstance(actions, dict):
            return {name: torch.as_tensor(action) for name, action in actions.items()}
        form, actions = self.action_format, torch.as_tensor(actions)
        if actions.device != self.device:
            actions = actions.to(self.device, non_blocking=self.device.type != "cpu")
        if form.is_one_hot:
            parts = torch.split(actions, form.sizes, -1)
            chosen = torch.stack([part.argmax(-1) for part in parts], -1)
            actions = chosen.squeeze(-1) if form.is_index else chosen
        if self._start is not None:
            actions = actions + self._start
        return torch.clamp(actions, *form.bounds(self.device)) if form.clips else actions

    def values(self, observation: Observations) -> dict[NestedKey, torch.Tensor]:
        """The arrays of an observation by key, in order; discrete ones start at 0."""
        if not self._starts:
            return {key: observation[key] for key in self._keys}
        return {key: observation[key] - self._starts.get(key, 0) for key in self._keys}

    def take_log(self) -> dict[str, torch.Tensor]:
        log = {name: torch.stack(values).nanmean() for name, values in self._logged.items()}
        self._logged = {}
        return log

    def state_dict(self) -> dict[str, Any]:
        return {"world": self.world.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> bool:
        return self.world.load_state_dict(state_dict["world"]) and self._restores

    def set_attribute(self, name: str, value: Any) -> None:
        owner = getattr(self.world, "simulator", self.world)
        if not hasattr(owner, name):
            raise no_attribute(self.name, name)
        now = getattr(owner, name)
        if isinstance(now, torch.Tensor):
            now.copy_(torch.as_tensor(value))
        else:
            setattr(owner, name, value)

    def close(self) -> None:
        self.world.close()

    def _put(self, observation: Observations, row: int) -> None:
        for key, value in self.values(observation).items():
            self._buffers.inputs[key][row].copy_(value)


def signals_of(outcome: Outcome) -> dict[NestedKey, torch.Tensor]:
    """Reward and ends of a step by key, ``[num_envs]``."""
    return {
        "reward": outcome.reward,
        "terminated": outcome.terminated,
        "truncated": outcome.truncated,
    }


def info_column(
    key: str,
    values: Mapping[str, torch.Tensor] | None,
    name: str,
    num_envs: int,
    device: torch.device,
) -> torch.Tensor:
    """One number for each environment, float32 ``[num_envs]``; NaN if there are none."""
    value = None if values is None else values.get(key)
    if value is None:
        return torch.full((num_envs,), torch.nan, device=device)
    shape = list(getattr(value, "shape", ()))
    if math.prod(shape) != num_envs:
        raise ConfigError(
            f"info_keys: info[{key!r}] of {name} has the shape {shape}, not one number for each of "
            f"the {num_envs} environments: leave the key out."
        )
    return value.reshape(num_envs).float()
