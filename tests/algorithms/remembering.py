"""An environment in which one has to remember, and small runs in it."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from hooktrainer import Trainer, algorithms


class Recall(gym.Env):
    """A cue is seen in the first step only; every later step is paid for naming it.

    Episodes last 3 to 9 steps, and every other one is truncated. The observation has several parts.
    With ``masked``, a fourth action is forbidden, and sometimes another one that is wrong.
    """

    def __init__(self, continuous: bool = False, masked: bool = False) -> None:
        parts: dict[str, spaces.Space[Any]] = {
            "clock": spaces.Box(-10.0, 10.0, (2,)),
            "cue": spaces.Discrete(4),
        }
        self.masked = masked
        if masked:
            parts["action_mask"] = spaces.MultiBinary(4)
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Box(-1, 1, (1,)) if continuous else spaces.Discrete(3 + masked)
        self.time = self.cue = self.length = self.played = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.played = 0, self.played + 1
        self.cue, self.length = int(self.np_random.integers(3)), int(self.np_random.integers(3, 10))
        return self._observe(self.cue), {}

    def step(self, action):
        self.time += 1
        if isinstance(self.action_space, spaces.Box):
            reward = -abs(float(action[0]) - (self.cue - 1))
        else:
            reward = float(int(action) == self.cue)
        ends = self.time == self.length
        truncated = bool(self.length % 2)
        return self._observe(3), reward, ends and not truncated, ends and truncated, {}

    def _observe(self, shown: int) -> dict[str, Any]:
        clock = np.array([self.time, self.np_random.normal()], np.float32)
        seen: dict[str, Any] = {"clock": clock, "cue": np.int64(shown)}
        if self.masked:
            mask = np.array([1, 1, 1, 0], np.int8)
            mask[(self.cue + 1) % 3] = self.np_random.integers(2)
            seen["action_mask"] = mask
        return seen


SMALL: dict[str, Any] = {
    "memory_size": 8,
    "memory_length": 5,
    "num_cells": (8,),
    "num_envs": 4,
    "steps_per_batch": 20,
    "mini_batch_size": 20,
    "sequence_length": 10,
    "num_epochs": 2,
    "init_random_frames": 0,
    "eval_episodes": 2,
    "progress_bar": False,
    "total_frames": 160,
}


REPLAYED = {  # of the algorithms with a replay buffer
    "batch_size": 32,
    "buffer_size": 800,
    "sequence_length": 8,
    "burn_in": 3,
    "optim_steps_per_batch": 2,
}


def make(name: str, memory: Any = "gru", *, masked: bool = False, **options: Any) -> Trainer:
    """A small run in `Recall`."""
    kind = algorithms.get(name)
    known = {field.name for field in fields(kind)}
    small = SMALL | (REPLAYED if "burn_in" in known else {})
    given = {key: value for key, value in small.items() if key in known}
    continuous = kind.actions in ("continuous", "bounded")
    return kind(
        env=partial(Recall, continuous, masked), **{**given, "memory": memory, **options}
    ).trainer()
