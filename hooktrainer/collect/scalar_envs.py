"""Scalar environments, stepped one after another."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd

from ..base.space_parts import MASK
from ..errors import ConfigError, StateMismatchError, add_note
from .batched_env import (
    ArrayEnv,
    EnvOptions,
    Finished,
    Restore,
    check_alike,
    check_replayed,
    no_attribute,
    reset_env,
)
from .buffers import Row, as_arrays
from .info import write_infos
from .last_step import show_sums
from .spaces import check_numbers


class ScalarEnvs(ArrayEnv):
    """Scalar Gymnasium environments as an `ArrayEnv`."""

    def __init__(self, envs: Sequence[gym.Env[Any, Any]], options: EnvOptions) -> None:
        if len({id(env.unwrapped) for env in envs}) != len(envs):
            raise ConfigError(
                "Two environments are one and the same object. Each factory has to build a new "
                "one, for instance lambda: gymnasium.make(...)."
            )
        check_alike(envs)
        first = envs[0]
        names = [str(env) for env in envs]
        restores = list(map(choose_restore, envs))
        super().__init__(names, restores, options, first.observation_space, first.action_space)
        self._envs = list(envs)
        self._steps = [_repeated(env, self.frame_skip) for env in envs]
        self._infos: list[dict[str, Any]] = [{} for _ in envs]  # of the last step

    def first_mask(self) -> Any:
        return reset_env(self._envs[0], self.seeds(0, 0), self._reset_options)[1].get(MASK)

    def reset(self) -> None:
        rows = self._rows[-1].observation
        for i in range(self.num_envs):
            try:
                self._layout.write(rows, i, *self._begin(i, self.episodes[i] + 1))
            except Exception as error:
                self._annotate(error, i, "resetting")
                raise

    def step(self, actions: Any, t: int) -> list[Finished]:
        finished: list[Finished] = []
        row = self._rows[t]
        layout, steps, infos = self._layout, self._steps, self._infos
        rewards, terminations, truncations = row.reward, row.terminated, row.truncated
        i = 0
        try:
            for i, action in enumerate(self.action_format.each(as_arrays(actions))):
                outcome = steps[i](action)
                try:
                    observation, reward, terminated, truncated, info = outcome
                except (TypeError, ValueError):
                    raise ConfigError(
                        f"step() of {self.names[i]} did not return five values; let it return "
                        "(observation, reward, terminated, truncated, info)."
                    ) from None
                infos[i] = info
                try:
                    if reward is None or terminated is None or truncated is None:
                        raise TypeError("None is no number")
                    rewards[i] = reward
                    terminations[i] = terminated
                    truncations[i] = truncated
                except (TypeError, ValueError):
                    ends = {"terminated": terminated, "truncated": truncated}
                    check_numbers(self.names[i], reward=reward, **ends)
                    raise
                if terminated or truncated:
                    finished.append((i, layout.copies(observation, info)))
                    observation, info = self._begin(i, self.episodes[i] + 1)
                layout.write(row.observation, i, observation, info)
        except Exception as error:
            self._annotate(error, i, "stepping", f" at step {t + 1} of the batch,")
            raise
        if self.entries:
            self._write_entries(row, infos)
        return finished

    def _write_entries(self, row: Row, infos: Sequence[dict[str, Any]]) -> None:
        write_infos(self.info_keys, row, infos, self.names)

    def _annotate(self, error: Exception, i: int, doing: str, when: str = "") -> None:
        place = self.seeds.first_env + i
        episode = self.episodes[i]
        begun = f"in episode {episode}, begun by reset(seed={self.seeds(i, max(episode, 0))})"
        add_note(error, f"raised while {doing} environment {place}, {self.names[i]},{when} {begun}")

    def snapshots(self) -> list[Any]:
        return [
            None if restore.method == "none" else snapshot(env)
            for env, restore in zip(self._envs, self.restores, strict=True)
        ]

    def restore(
        self, episodes: Sequence[int], snapshots: Sequence[Any], actions: Sequence[Any]
    ) -> list[int]:
        lost, rows = [], self._rows[-1].observation
        for i, (env, restore) in enumerate(zip(self._envs, self.restores, strict=True)):
            if restore.method == "none":
                lost.append(i)
                self._layout.write(rows, i, *self._begin(i, episodes[i] + 1))
                continue
            observation, info = self._begin(i, episodes[i])
            if (played := actions[i]) is not None:
                for action in self.action_format.each(played):
                    observation, _, _, _, info = self._steps[i](action)
            if snapshots[i] is not None:
                restore_snapshot(env, snapshots[i])
            else:
                values = self._layout.copies(observation, info)
                saved = [leaf[i] for leaf in rows]
                place = f"environment {self.seeds.first_env + i}, {self.names[i]}"
                check_replayed(values, saved, f"Episode {episodes[i]} of {place}")
        return lost

    def set_attribute(self, name: str, value: Any) -> None:
        for env in self._envs:
            if not env.has_wrapper_attr(name):
                raise no_attribute(self.name, name)
            env.set_wrapper_attr(name, value)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _begin(self, i: int, episode: int) -> tuple[Any, dict[str, Any]]:
        self.episodes[i] = episode
        observation, info = reset_env(self._envs[i], self.seeds(i, episode), self._reset_options)
        self._layout.check(observation, info, self.names[i])
        return observation, info


def _repeated(env: gym.Env[Any, Any], times: int) -> Callable[[Any], Any]:
    show_sums(env, times)
    step = env.step
    if times == 1:
        return step

    def repeat(action: Any) -> Any:
        total = 0.0
        for _ in range(times):
            observation, reward, terminated, truncated, info = step(action)
            check_numbers(env, reward=reward)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info

    return repeat


# -- How a running episode comes back after a resume.


def choose_restore(env: gym.Env[Any, Any]) -> Restore:
    """The method that restores the episodes of ``env``."""
    if env.spec is not None and env.spec.nondeterministic:
        return Restore("none", "registered as nondeterministic")
    return Restore("state" if _has_episode_state(_layers(env)[-1]) else "replay")


# A Gymnasium environment is a chain of wrappers around a base. A layer may give the state of itself
# and of all within it by ``episode_state()``, as plain data, and take it by
# ``set_episode_state(state)``; the numbers of the wrappers around it are then the rest. A replay
# restores all but running moments, which outlast episodes, and what wrappers made with them.
def snapshot(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """The state of an episode in addition to its actions, as a state tree."""
    *wrappers, last = _layers(env)
    has_state = _has_episode_state(last)
    if not has_state and not any(map(_has_moments, wrappers)):
        return None
    numbers = [_numbers(layer) for layer in wrappers]
    state = copy.deepcopy(last.episode_state()) if has_state else None
    return {"state": state, "wrappers": numbers}


def restore_snapshot(env: gym.Env[Any, Any], saved: Mapping[str, Any]) -> None:
    """Restore in ``env`` the `snapshot` of an environment that was built the same way."""
    *wrappers, last = _layers(env)
    if len(saved["wrappers"]) != len(wrappers):
        raise StateMismatchError(
            f"the saved environment has {len(saved['wrappers'])} wrappers, {env} has "
            f"{len(wrappers)}: build it with the same."
        )
    if _has_episode_state(last):
        last.set_episode_state(saved["state"])
    for layer, numbers in zip(wrappers, saved["wrappers"], strict=True):
        for name in numbers.keys() & _numbers(layer).keys():
            value = getattr(layer, name)
            if isinstance(value, RunningMeanStd):
                value.mean, value.var, value.count = numbers[name]
            else:
                setattr(layer, name, copy.deepcopy(numbers[name]))


def _numbers(layer: Any) -> dict[str, Any]:
    """The numbers, arrays and running moments among the attributes of a wrapper."""
    found: dict[str, Any] = {}
    for name, value in vars(layer).items():
        if isinstance(value, RunningMeanStd):
            found[name] = [np.array(value.mean), np.array(value.var), value.count]
        elif isinstance(value, (bool, int, float, np.generic, np.ndarray, deque)):
            found[name] = copy.deepcopy(value)
    return found


def _has_moments(layer: Any) -> bool:
    return any(isinstance(value, RunningMeanStd) for value in vars(layer).values())


def _has_episode_state(layer: Any) -> bool:
    return hasattr(type(layer), "episode_state")


def _layers(env: gym.Env[Any, Any]) -> list[Any]:
    """The wrappers and the base, from the outside in, up to the first that has an episode state."""
    layers: list[Any] = [env]
    while isinstance(layers[-1], gym.Wrapper) and not _has_episode_state(layers[-1]):
        layers.append(layers[-1].env)
    return layers
