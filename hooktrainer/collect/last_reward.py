"""`LastReward`: a wrapper that adds the reward of the last action to the observation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

LAST_REWARD = "last_reward"
"""The entry of the observation."""


class LastReward(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Observations are a dict: the environment's own, and the reward of the last action.

    A policy that needs the rewards, such as that of a decision transformer, acts in it. The entries
    are ``"observation"`` and ``"last_reward"``, float32 ``[1]``, 0 where an episode begins.
    Where a collector or `play_episodes` repeats the action, it is the sum of its rewards.

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
        self.observation_space = spaces.Dict(
            {"observation": env.observation_space, LAST_REWARD: reward}
        )

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self._frames = 0
        observation, info = self.env.reset(**options)
        return _with_reward(observation, 0.0), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._sum = self._sum + reward if self._frames % self.frame_skip else reward
        self._frames += 1
        return _with_reward(observation, self._sum), reward, terminated, truncated, info


def show_sums(env: Any, frame_skip: int) -> None:
    """Have a `LastReward` in ``env`` add up rewards, since each action is repeated."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, LastReward):
            env.frame_skip = frame_skip
        env = env.env


def _with_reward(observation: Any, reward: Any) -> dict[str, Any]:
    return {"observation": observation, LAST_REWARD: np.array([reward], np.float32)}
