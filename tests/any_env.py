"""An environment of any spaces, for tests: a short episode of what is drawn from the spaces."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np


class AnyEnv(gym.Env[Any, Any]):
    """Draws its observations, refuses actions that are none of its space, ends after 9 steps.

    Args:
        observation: Its observation space.
        action: Its action space.
        mask_size: Size of the action mask that it puts in its info; what the mask forbids there is
            refused. 0 for none.
    """

    def __init__(
        self, observation: gym.Space[Any], action: gym.Space[Any], mask_size: int = 0
    ) -> None:
        self.observation_space = copy.deepcopy(observation)  # whose random numbers are its own
        self.action_space = action
        self._mask_size = mask_size
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._steps = 0
        return self.observation_space.sample(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is none of {self.action_space}"
        if self._mask_size:
            assert self._allows(action), f"{action!r} is forbidden by {self._mask}"
        self._steps += 1
        ended = self._steps == 9
        return self.observation_space.sample(), 1.0, ended, False, self._info()

    def _info(self) -> dict[str, Any]:
        if not self._mask_size:
            return {}
        self._mask = self.np_random.random(self._mask_size) < 0.5
        space: Any = self.action_space
        sizes = [space.n] if isinstance(space, gym.spaces.Discrete) else space.nvec.ravel()
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._mask[self._starts] = True
        return {"action_mask": self._mask}

    def _allows(self, action: Any) -> bool:
        return bool(self._mask[self._starts + np.ravel(action)].all())
