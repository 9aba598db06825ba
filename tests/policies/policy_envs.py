"""Environments for the tests of saved policies."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Toy(gym.Env[Any, Any]):
    """Draws every observation from its space; rewards the sum of the action; takes 3 to 6 steps."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, observation: Any = None, action: Any = None, mask: int = 0) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (4,)) if observation is None else observation
        self.action_space = spaces.Discrete(3) if action is None else action
        self.mask = mask
        self.left = 0
        self.render_mode: str | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.left = int(self.np_random.integers(3, 7))
        return self.observation_space.sample(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.left -= 1
        reward = float(np.sum(action)) + self.left
        return self.observation_space.sample(), reward, self.left == 0, False, self._info()

    def render(self) -> Any:
        return np.zeros((4, 4, 3), np.uint8) if self.render_mode == "rgb_array" else None

    def _info(self) -> dict[str, Any]:
        if not self.mask:
            return {}
        allowed = self.np_random.random(self.mask) < 0.5
        allowed[0] = True
        return {"action_mask": allowed}


class Endless(Toy):
    """Never comes to the end of its first step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(120.0)
        raise AssertionError


class Broken(Toy):
    """Cannot be stepped."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        raise RuntimeError("the gears are stuck")
