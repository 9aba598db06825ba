"""`TorchRLWorld`: a batched ``EnvBase`` of TorchRL."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey, TensorDictBase, unravel_key
from torch.nn import functional

from ....errors import ConfigError
from ..tensor_world import Observations, Outcome
from .foreign_world import ForeignWorld

_INFO: Final = "info"
_COUNTED: Final = ("episode_reward", "step_count", "is_init")
"""Entries of ``RewardSum``, ``StepCounter`` and ``InitTracker``; a collector writes its own."""


class TorchRLWorld(ForeignWorld):
    """An ``EnvBase`` of TorchRL with batch size ``[num_envs]``, as a `TensorWorld`.

    VMAS, Brax, MJX and so on through TorchRL, with transforms. Its ``step_and_maybe_reset`` returns
    the true final observations, but waits for the device. Observations under a key ``"info"`` are
    its log.

    Args:
        env: The environment. Nothing is called before `seed` and `reset`.

    Raises:
        ConfigError: If it has no batch size, several agents, or specs without a space.
    """

    def __init__(self, env: Any) -> None:
        name = type(env).__name__
        keys = [*env.action_keys, *env.reward_keys]
        if len(env.batch_size) != 1 or len(keys) != 2 or not all(isinstance(k, str) for k in keys):
            raise ConfigError(
                f"{name} has the batch size {list(env.batch_size)}, and actions and rewards "
                f"{', '.join(map(str, keys))}: one number of environments and one agent are needed."
                " Make it with num_envs= or batch_size=; train several agents with mappo or ippo, "
                "those of VMAS as env='vmas/...'."
            )
        if _resets_a_step_late(env):
            raise ConfigError(
                f"{name} is a vector environment of Gymnasium's in TorchRL, which shows no final "
                "observations and a step too many between episodes: give Gymnasium's itself, or "
                "SerialEnv or ParallelEnv of single ones."
            )
        num_envs = env.batch_size[0]
        self._env = env
        self._action_key, self._reward_key = keys
        action_spec = env.full_action_spec[self._action_key]
        self._action_shape = tuple(action_spec.shape)
        self._dtype = action_spec.dtype
        self._choices = action_spec.space.n if _is_one_hot(action_spec) else None
        self._flags = ["terminated" if "terminated" in env.done_keys else "done"]
        self._flags += ["truncated"] if "truncated" in env.done_keys else []
        self._keys, self._logs, observed = _observed(env, name, num_envs)
        self._td: TensorDictBase | None = None
        super().__init__(
            name,
            num_envs,
            env.device or "cpu",
            spaces.Dict(observed) if [*observed] != ["observation"] else observed["observation"],
            space_of(action_spec[0], f"The action of {name}"),
            lost="TorchRL has no call that saves what an environment holds",
        )

    def _start_over(self, seed: int) -> None:
        self._env.set_seed(seed)

    def reset(self) -> Observations:
        td = self._env.reset()
        self._td = td
        return self._seen(td)

    def step(self, actions: torch.Tensor) -> Outcome:
        assert self._td is not None, "reset comes before the first step"
        if self._choices is not None:
            actions = functional.one_hot(actions, self._choices).to(self._dtype)
        td = self._td.set(self._action_key, actions.reshape(self._action_shape))
        td, self._td = self._env.step_and_maybe_reset(td)
        after = td["next"]
        ends = [after[key].reshape(self.num_envs) for key in self._flags]
        return Outcome(
            self._seen(self._td),
            after[self._reward_key].reshape(self.num_envs),
            ends[0],
            ends[1] if len(ends) > 1 else torch.zeros_like(ends[0]),
            self._seen(after),
            {name: after[key].reshape(self.num_envs) for name, key in self._logs.items()},
        )

    def close(self) -> None:
        if not self._env.is_closed:
            self._env.close()

    def _seen(self, td: TensorDictBase) -> Observations:
        return {
            name: (td[key].long().argmax(-1) if one_hot else td[key]).reshape(shape)
            for name, (key, shape, one_hot) in self._keys.items()
        }


def _observed(
    env: Any, name: str, num_envs: int
) -> tuple[dict[NestedKey, Any], dict[str, NestedKey], dict[str, spaces.Space[Any]]]:
    """By name each observation's key, shape and whether it is one-hot; log keys; and the spaces."""
    keys: dict[NestedKey, Any] = {}
    logs: dict[str, NestedKey] = {}
    observed: dict[str, spaces.Space[Any]] = {}
    for key, spec in env.observation_spec.items(True, True):
        path = key if isinstance(key, tuple) else (key,)
        if _INFO in path:
            if spec.shape.numel() == num_envs:
                logs["/".join(path[path.index(_INFO) :])] = unravel_key(path)
            continue
        entry = str(path[-1])
        if entry in _COUNTED:
            continue
        if entry in observed:
            raise ConfigError(
                f"{name} observes two entries called {entry!r}: let a transform rename one."
            )
        observed[entry] = space_of(spec[0], f"The observation {entry!r} of {name}")
        shape = (num_envs, *(observed[entry].shape or ()))
        keys[entry] = (unravel_key(path), shape, _is_one_hot(spec))
    return keys, logs, observed


def _resets_a_step_late(env: Any) -> bool:
    from torchrl.envs import TransformedEnv, VecGymEnvTransform

    while isinstance(env, TransformedEnv):
        transforms = env.transform
        if any(isinstance(one, VecGymEnvTransform) for one in transforms.modules()):
            return True
        env = env.base_env
    return False


def space_of(spec: Any, name: str) -> spaces.Space[Any]:
    """The Gymnasium space of a leaf of TorchRL's specs; raises ConfigError if there is none."""
    from torchrl.data import Binary, Bounded, Categorical, MultiCategorical, OneHot, Unbounded

    shape = tuple(spec.shape)
    if isinstance(spec, MultiCategorical):
        return spaces.MultiDiscrete(spec.nvec.cpu().numpy())
    if isinstance(spec, OneHot | Categorical) and not isinstance(spec, Binary):
        number, shape = int(spec.space.n), shape[:-1] if _is_one_hot(spec) else shape
        if shape in ((), (1,)):
            return spaces.Discrete(number)
        return spaces.MultiDiscrete(np.full(shape, number))
    if isinstance(spec, Binary) or spec.dtype is torch.bool:
        return spaces.MultiBinary(list(shape))
    if isinstance(spec, Bounded | Unbounded):
        dtype: Any = torch.empty(0, dtype=spec.dtype).numpy().dtype
        if isinstance(spec, Unbounded) and dtype.kind == "f":
            return spaces.Box(-np.inf, np.inf, shape, np.float32)
        low, high = (np.broadcast_to(x.cpu().numpy(), shape) for x in (spec.low, spec.high))
        return spaces.Box(low, high, shape, np.float32 if dtype.kind == "f" else dtype)
    raise ConfigError(
        f"{name} is a {type(spec).__name__} of shape {list(shape)}, for which there is no space: "
        "let a transform change it."
    )


def _is_one_hot(spec: Any) -> bool:
    from torchrl.data import OneHot

    return isinstance(spec, OneHot)
