"""Vector environments of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.classic_control.utils import maybe_parse_reset_bounds
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from torch.utils._pytree import tree_leaves

from ..base.space_parts import MASK
from ..errors import ConfigError, add_note
from .batched_env import (
    ArrayEnv,
    EnvOptions,
    Finished,
    Restore,
    autoreset_mode_of,
    check_replayed,
    no_attribute,
)
from .buffers import as_arrays
from .info import write_vector_info
from .spaces import Array

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]


class _CartPoleActions(gym.spaces.MultiDiscrete):
    """Checked in every step, which takes Gymnasium a sixth of the time of 4 CartPoles."""

    def contains(self, x: Any) -> bool:
        return bool(x.shape == self.shape and x.min() >= 0 and x.max() <= 1)


class SeededCartPole(CartPoleVectorEnv):
    """Gymnasium's vectorised CartPole, whose episodes begin one by one with seeds of their own."""

    metadata = {**CartPoleVectorEnv.metadata, "autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    state: Any

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        super().__init__(num_envs, **options)
        self.action_space = _CartPoleActions(np.full(num_envs, 2))

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        low, high = maybe_parse_reset_bounds(options, -0.05, 0.05)
        begins = (options or {}).get("reset_mask")
        if begins is None:
            begins, self.state = np.ones(self.num_envs, bool), np.zeros((4, self.num_envs))
        for i in np.flatnonzero(begins).tolist():
            generator, _ = np_random(seed[i])
            self.state[:, i] = generator.uniform(low, high, 4)
        self.steps[begins] = 0
        self.prev_done[begins] = False
        return self.state.T.astype(np.float32), {}


class VectorEnvs(ArrayEnv):
    """A vector environment as an `ArrayEnv`.

    Gymnasium's synchronous and asynchronous vector environments take a seed for each
    sub-environment that is reset: their episodes are seeded singly and restored by replay. Any
    other is seeded once, uses its own generators, and cannot be restored. In autoreset mode
    ``DISABLED`` it receives the sub-environments to reset; in ``SAME_STEP`` it resets them itself;
    in ``NEXT_STEP`` in a step that is no transition, which ``began`` marks.

    An environment whose observations are tensors takes its actions as tensors, where these are.
    """

    def __init__(self, env: VectorEnv, options: EnvOptions) -> None:
        if options.frame_skip not in (None, 1):
            raise ConfigError(
                f"frame_skip={options.frame_skip} does not go with {env}: repeat actions in its "
                "environments."
            )
        value, base = autoreset_mode_of(env), env.unwrapped
        try:
            mode = AutoresetMode(value)
        except ValueError:
            raise ConfigError(
                f"{env} has autoreset_mode={value!r}, which does not define where its episodes "
                "begin: set it in its metadata to gymnasium.vector.AutoresetMode.NEXT_STEP, "
                "SAME_STEP or DISABLED."
            ) from None
        self._seeds_each = isinstance(base, (SyncVectorEnv, SeededCartPole)) or (
            # Without shared memory a worker in this mode does not notice that it was reset.
            isinstance(base, AsyncVectorEnv)
            and (base.shared_memory or mode is not AutoresetMode.NEXT_STEP)
        )
        self._resets_itself = mode is AutoresetMode.SAME_STEP
        self.has_gaps = mode is AutoresetMode.NEXT_STEP and not self._seeds_each
        restore = Restore("none", "it seeds its sub-environments itself")
        if self._seeds_each:
            restore = Restore("replay")
        super().__init__(
            [str(env)] * env.num_envs,
            [restore] * env.num_envs,
            options,
            env.single_observation_space,
            env.single_action_space,
        )
        self._env = env
        self.began = np.zeros(env.num_envs, bool)
        self._ended = np.zeros(env.num_envs, bool)  # in the last step
        self._device: torch.device | None = None  # of its tensors

    def first_mask(self) -> Any:
        masks = self._begin([0] * self.num_envs)[1].get(MASK)
        return None if masks is None else masks[0]

    def reset(self) -> None:
        self.episodes = [episode + 1 for episode in self.episodes]
        self._ended = np.zeros(self.num_envs, bool)
        observation, info = self._begin(self.episodes)
        self._layout.check(observation, info, self.names[0], self.num_envs)
        self._layout.write(self._rows[-1].observation, ..., observation, info)

    def step(self, actions: Any, t: int) -> list[Finished]:
        row = self._rows[t]
        try:
            observation, reward, terminated, truncated, info = self._outcome(as_arrays(actions))
            if t == 0:  # one number for all of them would be written to each
                for values in (reward, terminated, truncated):
                    np.reshape(values, self.num_envs)
            row.reward[...] = reward
            row.terminated[...] = terminated
            row.truncated[...] = truncated
        except Exception as error:
            add_note(error, f"raised while stepping {self._env}, at step {t + 1} of a batch")
            raise
        if self.has_gaps:
            self.began = self._ended
            for array in (row.reward, row.terminated, row.truncated):
                array[self.began] = 0
            self._ended = row.terminated | row.truncated
        self._layout.write(row.observation, ..., observation, info)
        if self.info_keys:
            final = info.get("final_info", {}) if self._resets_itself else None
            write_vector_info(self.info_keys, row, info, self.names[0], final)
        done = row.terminated | row.truncated
        if not np.count_nonzero(done):
            return []
        finished = [(i, self._final(i, observation, info)) for i in np.flatnonzero(done).tolist()]
        for i, _ in finished:
            self.episodes[i] += 1
        if self._seeds_each or not (self._resets_itself or self.has_gaps):
            self._begin_some(done, row.observation)
        return finished

    def restore(
        self, episodes: Sequence[int], snapshots: Sequence[Any], actions: Sequence[Any]
    ) -> list[int]:
        self.episodes = list(episodes)
        if self.restores[0].method == "none":
            self.reset()
            return list(range(self.num_envs))
        # All replays end in the same step; the shorter ones begin later. Before that their
        # environments take any allowed actions, and are reset when they end.
        played = [array for array in actions if array is not None]
        lengths = np.array([len(array) for array in played])
        starts = lengths.max() - lengths
        numbers = torch.full((self.num_envs, self.action_format.numbers), 0.5)
        place = next((n for n, leaf in enumerate(self._layout.leaves) if leaf.key == (MASK,)), None)
        values = self._layout.copies(*self._begin(self.episodes))
        for t in range(lengths.max()):
            mask = None if place is None else torch.from_numpy(values[place])
            idle = self.action_format.draw(numbers, mask).numpy()
            taken = [
                array[t - start] if t >= start else idle[i]
                for i, (array, start) in enumerate(zip(played, starts, strict=True))
            ]
            observation, _, terminated, truncated, info = self._outcome(np.stack(taken))
            values = self._layout.copies(observation, info)
            begin = (t + 1 == starts) | ((t + 1 < starts) & (terminated | truncated))
            if begin.any():
                self._begin_some(begin, values)
        check_replayed(values, self._rows[-1].observation, f"A running episode of {self._env}")
        return []

    def set_attribute(self, name: str, value: Any) -> None:
        if not hasattr(self._env.unwrapped, name):
            raise no_attribute(self.name, name)
        setattr(self._env.unwrapped, name, value)

    def close(self) -> None:
        self._env.close()

    def _begin(self, episodes: Sequence[int], which: Array | None = None) -> Any:
        """Begin episodes in all sub-environments, or some; return the observations of all."""
        options, numbers = self._reset_options, range(self.num_envs)
        if which is not None:
            options = {**(options or {}), "reset_mask": which}
            numbers = np.flatnonzero(which).tolist()
        seed: Any = None
        if self._seeds_each:
            seed = [None] * self.num_envs
            for i in numbers:
                seed[i] = self.seeds(i, episodes[i])
        elif which is None:
            seed = self.seeds(0, max(episodes))
        begun = self._env.reset(seed=seed, options=options)
        if which is None:
            tensors = [x for x in tree_leaves(begun[0]) if isinstance(x, torch.Tensor)]
            self._device = tensors[0].device if tensors else None
        return begun if self._device is None else as_arrays(begun)

    def _begin_some(self, which: Array, rows: Sequence[Array]) -> None:
        """Begin the episodes of some; write only their rows, since masks lack the others."""
        values = self._layout.values(*self._begin(self.episodes, which))
        for row, value in zip(rows, values, strict=True):
            row[which] = np.asarray(value)[which]

    def _outcome(self, actions: Array) -> Any:
        taken: Any = self.action_format.to_env(actions)
        if self._device is not None:
            taken = torch.from_numpy(taken).to(self._device)
        outcome = self._env.step(taken)
        return outcome if self._device is None else as_arrays(outcome)

    def _final(self, i: int, observation: Any, info: dict[str, Any]) -> list[Array]:
        if not self._resets_itself:
            return self._layout.copies(observation, info, i)
        final = info["final_obs"]  # the true final observations of the episodes that ended
        final_info = info.get("final_info", {})
        if isinstance(final, np.ndarray) and final.dtype == object:
            one = {MASK: final_info[MASK][i]} if MASK in final_info else {}
            return self._layout.copies(final[i], one)
        return self._layout.copies(final, final_info, i)


_METHODS = ("async_reset", "recv", "send", "step", "config")


def is_envpool(env: Any) -> bool:
    """Whether something was built by ``envpool.make``."""
    return not isinstance(env, type) and all(hasattr(env, name) for name in _METHODS)


class EnvPoolEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """A vector environment of EnvPool's, in autoreset mode ``NEXT_STEP``.

    Args:
        pool: What ``envpool.make(..., env_type="gymnasium")`` returned. Its seed was given there.

    Raises:
        ConfigError: If it has another interface, or returns before all sub-environments stepped.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, pool: Any) -> None:
        self.num_envs = int(pool.config["num_envs"])
        batch_size = int(pool.config.get("batch_size") or self.num_envs)
        name = type(pool).__name__
        if not isinstance(pool.observation_space, gym.Space):
            raise ConfigError(f"{name}: build it with envpool.make(..., env_type='gymnasium').")
        if batch_size != self.num_envs:
            raise ConfigError(
                f"{name} has num_envs={self.num_envs} and batch_size={batch_size}: leave out "
                "batch_size, so that all sub-environments take each step."
            )
        self._pool = pool
        self.single_observation_space = pool.observation_space
        self.single_action_space = pool.action_space
        self.observation_space = gym.vector.utils.batch_space(pool.observation_space, self.num_envs)
        self.action_space = gym.vector.utils.batch_space(pool.action_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._pool.reset()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return self._pool.step(actions)

    def close_extras(self, **kwargs: Any) -> None:
        self._pool.close()

    def __str__(self) -> str:
        return f"{type(self._pool).__name__}(num_envs={self.num_envs})"
