"""`LastReward`: a wrapper that adds the reward of the last step to the observation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

LAST_REWARD = "last_reward"
"""The entry of the observation."""


class LastReward(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Observations are a dict: the environment's own, and the reward of the last step.

    A policy that needs the rewards, such as that of a decision transformer, acts in it. The entries
    are ``"observation"`` and ``"last_reward"``, float32 ``[1]``, 0 where an episode begins.

    Args:
        env: The environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        reward = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = spaces.Dict(
            {"observation": env.observation_space, LAST_REWARD: reward}
        )

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        return _with_reward(observation, 0.0), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return _with_reward(observation, reward), reward, terminated, truncated, info


def _with_reward(observation: Any, reward: Any) -> dict[str, Any]:
    return {"observation": observation, LAST_REWARD: np.array([reward], np.float32)}
