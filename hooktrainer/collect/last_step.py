"""`LastAction` and `LastReward`: wrappers that add the last step to the observation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from ..errors import ConfigError

LAST_ACTION, LAST_REWARD = "last_action", "last_reward"
"""The entries of the observation."""


class LastAction(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Observations are a dict: the environment's own, and the last action.

    A policy with a memory needs it where outcomes do not show what was done, as in bandits. The
    entry ``"last_action"`` is float32 ``[n]``: the action as `gymnasium.spaces.flatten` has it, one
    hot if it is discrete, and 0 where an episode begins. The others are those of the environment,
    or ``"observation"`` if it has no dict.

    Args:
        env: The environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._none = np.zeros(spaces.flatdim(env.action_space), np.float32)
        action = spaces.Box(-np.inf, np.inf, self._none.shape, np.float32)
        self.observation_space = spaces.Dict(_with(env.observation_space, LAST_ACTION, action))

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        return _with(observation, LAST_ACTION, self._none.copy()), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        flat = np.asarray(spaces.flatten(self.env.action_space, action), np.float32)
        return _with(observation, LAST_ACTION, flat), reward, terminated, truncated, info


class LastReward(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Observations are a dict: the environment's own, and the reward of the last action.

    A policy that needs the rewards, such as that of a decision transformer, acts in it. The entry
    ``"last_reward"`` is float32 ``[1]``, 0 where an episode begins; the others are as in
    `LastAction`. Where a collector or `play_episodes` repeats the action, it is the sum of its
    rewards.

    Args:
        env: The environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.frame_skip = 1
        self._frames = 0  # of the episode
        self._sum: Any = 0.0
        reward = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = spaces.Dict(_with(env.observation_space, LAST_REWARD, reward))

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self._frames = 0
        observation, info = self.env.reset(**options)
        return _with(observation, LAST_REWARD, _vector(0.0)), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._sum = self._sum + reward if self._frames % self.frame_skip else reward
        self._frames += 1
        seen = _with(observation, LAST_REWARD, _vector(self._sum))
        return seen, reward, terminated, truncated, info


def show_sums(env: Any, frame_skip: int) -> None:
    """Have a `LastReward` in ``env`` add up rewards, since each action is repeated."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, LastReward):
            env.frame_skip = frame_skip
        env = env.env


def _with(observation: Any, key: str, added: Any) -> dict[str, Any]:
    """Return an observation, or its space, with an entry more."""
    if isinstance(observation, spaces.Dict) and key in observation.spaces:
        raise ConfigError(f"the observation has an entry {key!r} already: leave this wrapper out.")
    is_dict = isinstance(observation, (dict, spaces.Dict))
    return {**(observation if is_dict else {"observation": observation}), key: added}


def _vector(reward: Any) -> Any:
    return np.array([reward], np.float32)
