"""Environments with goals: flip bits to those wanted, reach a point."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class BitFlip(gym.Env[dict[str, Any], int]):
    """Each action flips a bit; -1 a step, 0 with the wanted bits, which ends the episode.

    Andrychowicz et al., 2017, section 3.1. An episode has as many steps as there are bits.
    """

    def __init__(self, bits: int = 15) -> None:
        each = spaces.Box(0.0, 1.0, (bits,))
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict.fromkeys(names, each))
        self.action_space = spaces.Discrete(bits)
        self.bits = self.goal = np.zeros(bits, np.float32)
        self.time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.bits, self.goal = self.np_random.integers(2, size=(2, *self.bits.shape)).astype("f4")
        return self._observe(), {}

    def step(self, action: int) -> Any:
        self.time += 1
        self.bits = self.bits.copy()
        self.bits[action] = 1 - self.bits[action]
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        return self._observe(), reward, reward == 0, self.time == len(self.bits), {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -(achieved != desired).any(-1).astype(np.float32)

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return self.compute_reward(achieved, desired, info) == 0

    def _observe(self) -> dict[str, Any]:
        return {
            "observation": self.bits,
            "achieved_goal": self.bits,
            "desired_goal": self.goal,
        }


class Reach(gym.Env[dict[str, Any], Any]):
    """Moves a point in a square to a goal: -1 a step unless it is near; episodes of 25 steps."""

    observation_space = spaces.Dict(
        {
            "observation": spaces.Box(-1.0, 1.0, (2,)),
            "achieved_goal": spaces.Box(-1.0, 1.0, (2,)),
            "desired_goal": spaces.Box(-1.0, 1.0, (2,)),
        }
    )
    action_space = spaces.Box(-1.0, 1.0, (2,))

    def __init__(self) -> None:
        self.place = self.goal = np.zeros(2, np.float32)
        self.time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        self.place = (self.place + 0.2 * np.asarray(action, np.float32)).clip(-1, 1)
        reward = float(self.compute_reward(self.place, self.goal, {}))
        return self._observe(), reward, False, self.time == 25, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        """Of one goal at a time: it is called row by row."""
        return 0.0 if float(np.linalg.norm(achieved - desired)) < 0.1 else -1.0

    def _observe(self) -> dict[str, Any]:
        return {
            "observation": self.place,
            "achieved_goal": self.place,
            "desired_goal": self.goal,
        }
