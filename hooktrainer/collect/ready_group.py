"""A vector environment that the user built: asynchronous, wrapped, or of another library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from ..errors import ConfigError, add_note
from .buffers import Row
from .group import EnvGroup, Finished, GroupOptions, said_autoreset_mode
from .info import of_one, write_vector_info
from .restore import NOT_ASKED, Restore, whole_step
from .spaces import Array

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]


class ReadyGroup(EnvGroup):
    """An `EnvGroup` over a vector environment as it is.

    Gymnasium's synchronous and asynchronous vector environments take a seed for each
    sub-environment that is reset: their episodes are seeded one by one and restored by replay. Any
    other is seeded once, goes on with its own generators, and cannot be restored. In autoreset mode
    ``DISABLED`` it is told which sub-environments to reset; in ``SAME_STEP`` it does so itself; in
    ``NEXT_STEP`` it does so in a step that is no transition, and ``began`` says for whom.

    An environment whose observations are tensors takes its actions as tensors, where these are.
    """

    kind = "a vector environment"

    def __init__(self, env: VectorEnv, options: GroupOptions) -> None:
        if options.frame_skip != 1:
            raise ConfigError(
                f"frame_skip={options.frame_skip} does not go with {env}: repeat actions in its "
                "environments."
            )
        mode = _mode(env)
        self._seeds_each = _seeds_each(env, mode)
        self._resets_itself = mode is AutoresetMode.SAME_STEP
        self.has_gaps = mode is AutoresetMode.NEXT_STEP and not self._seeds_each
        restore = NOT_ASKED
        if options.restore_episodes and self._seeds_each:
            restore = Restore("replay", "it takes a seed for each episode")
        elif options.restore_episodes:
            restore = Restore("none", "it seeds its sub-environments itself")
        super().__init__(
            [str(env)] * env.num_envs,
            [restore] * env.num_envs,
            options,
            env.single_observation_space,
            env.single_action_space,
        )
        self._env = env
        self._everyone = np.ones(env.num_envs, bool)
        self.began = ~self._everyone
        self._ended = ~self._everyone  # in the last step
        self._device: torch.device | None = None  # of its tensors

    def first_info(self) -> dict[str, Any]:
        """The ``info`` of the first sub-environment's first reset."""
        _, info = self._begin(self._everyone, [0] * self.num_envs)
        return of_one(info)

    def reset(self, row: Row) -> None:
        """Begin the next episode of every sub-environment."""
        self.episodes = [episode + 1 for episode in self.episodes]
        self._ended = ~self._everyone
        observation, info = self._begin(self._everyone, self.episodes)
        self._layout.check(observation, info, self.names[0], self.num_envs)
        self._layout.write(row.observation, ..., observation, info)

    def step(self, actions: Array, row: Row) -> list[Finished]:
        """Step all sub-environments and begin the next episode of those that finished."""
        try:
            observation, reward, terminated, truncated, info = self._outcome(actions)
        except Exception as error:
            add_note(
                error, f"raised while stepping {self._env}, at step {row.index + 1} of a batch"
            )
            raise
        row.reward[...] = reward
        row.terminated[...] = terminated
        row.truncated[...] = truncated
        if self.has_gaps:
            self.began = self._ended
            for array in (row.reward, row.terminated, row.truncated):
                array[self.began] = 0
            self._ended = row.terminated | row.truncated
        self._layout.write(row.observation, ..., observation, info)
        if self.info_keys:
            final = info.get("final_info", {}) if self._resets_itself else None
            write_vector_info(self.info_keys, row, info, self.names[0], final=final)
        done = row.terminated | row.truncated
        if not np.count_nonzero(done):
            return []
        finished = [(i, self._final(i, observation, info)) for i in np.flatnonzero(done).tolist()]
        for i, _ in finished:
            self.episodes[i] += 1
        if self._seeds_each or not (self._resets_itself or self.has_gaps):
            observation, info = self._begin(done, self.episodes)
            self._layout.check(observation, info, self.names[0], self.num_envs)
            for i, _ in finished:
                for leaf, value in zip(
                    row.observation, self._layout.copies(observation, info, i), strict=True
                ):
                    leaf[i] = value
        return finished

    def snapshots(self) -> list[str | None]:
        """Nothing: the states of the sub-environments are out of reach."""
        return [None] * self.num_envs

    def _restore(
        self,
        episodes: Sequence[int],
        snapshots: Sequence[str | None],
        actions: Sequence[Array | None],
        row: Row,
    ) -> list[int]:
        # Side by side, so that all end in the same step.
        self.episodes = list(episodes)
        played = [array for array in actions if array is not None]
        lengths = np.array([len(array) for array in played])
        starts = lengths.max() - lengths
        filler = played[int(lengths.argmax())]
        observation, _ = self._begin(self._everyone, self.episodes)
        for t in range(len(filler)):
            taken = [
                array[t - start] if t >= start else filler[t]
                for array, start in zip(played, starts, strict=True)
            ]
            observation, _, terminated, truncated, _ = self._outcome(np.stack(taken))
            # Those whose turn has not come take any action, and begin when it comes.
            begin = (t + 1 == starts) | ((t + 1 < starts) & (terminated | truncated))
            if begin.any():
                observation, _ = self._begin(begin, self.episodes)
        values = self._layout.observation_values(observation)
        self._hold_against(values, row.observation, str(self._env), "a running episode")
        return []

    def _holders(self) -> Sequence[Any]:
        return [self._env]

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _begin(self, which: Array, episodes: Sequence[int]) -> tuple[Any, dict[str, Any]]:
        options = self._reset_options
        if not which.all():
            options = {**(options or {}), "reset_mask": which}
        seed: Any = None
        if self._seeds_each:
            seed = [self.seeds(i, episode) for i, episode in enumerate(episodes)]
        elif which.all():
            seed = self.seeds(0, max(episodes))
        begun = self._env.reset(seed=seed, options=options)
        self._device = device_of_tensors(begun[0])
        return begun if self._device is None else as_arrays(begun)

    def _outcome(self, actions: Array) -> Any:
        """What the environment returns for the policy's actions."""
        taken: Any = self._format.to_env(actions)
        if self._device is None:
            outcome = whole_step(self._env.step(taken), self._env)
        else:
            stepped = self._env.step(torch.from_numpy(taken).to(self._device))
            outcome = as_arrays(whole_step(stepped, self._env))
        for name, values in zip(("reward", "terminated", "truncated"), outcome[1:4], strict=True):
            if np.shape(values) != (self.num_envs,):
                raise ConfigError(
                    f"{self._env}: step() returned {name} of shape {list(np.shape(values))}; let "
                    f"it return one for each of its environments, [{self.num_envs}]."
                )
        return outcome

    def _final(self, i: int, observation: Any, info: dict[str, Any]) -> list[Array]:
        if not self._resets_itself:
            return self._layout.copies(observation, info, i)
        try:
            final = info["final_obs"]
        except KeyError:
            raise KeyError(
                f"{self._env} is in mode SAME_STEP but gives no info['final_obs'], the true final "
                "observation of the episodes that ended."
            ) from None
        final_info = info.get("final_info", {})
        if isinstance(final, np.ndarray) and final.dtype == object:
            one = {key: value[i] for key, value in final_info.items()}
            return self._layout.copies(final[i], one)
        return self._layout.copies(final, final_info, i)


def _mode(env: VectorEnv) -> AutoresetMode:
    said = said_autoreset_mode(env)
    try:
        return AutoresetMode(said)
    except ValueError:
        raise ConfigError(
            f"{env} says autoreset_mode={said!r}, so nobody knows where its episodes begin: let "
            "its metadata have one of gymnasium.vector.AutoresetMode.NEXT_STEP, SAME_STEP and "
            "DISABLED."
        ) from None


def _seeds_each(env: VectorEnv, mode: AutoresetMode) -> bool:
    base = env.unwrapped
    if isinstance(base, AsyncVectorEnv):
        # Without shared memory a worker in this mode does not notice that it was reset.
        return base.shared_memory or mode is not AutoresetMode.NEXT_STEP
    return isinstance(base, SyncVectorEnv)


def device_of_tensors(tree: Any) -> torch.device | None:
    """Where the first tensor of an observation is; ``None`` if there is none."""
    if isinstance(tree, torch.Tensor):
        return tree.device
    parts = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, tuple) else ()
    return next((found for part in parts if (found := device_of_tensors(part)) is not None), None)


def as_arrays(tree: Any) -> Any:
    """The same with arrays in place of tensors; those of the CPU share their memory."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu().numpy()
    if isinstance(tree, Mapping):
        return {key: as_arrays(value) for key, value in tree.items()}
    return tuple(map(as_arrays, tree)) if isinstance(tree, tuple) else tree
