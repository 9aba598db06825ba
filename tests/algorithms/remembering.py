"""An environment in which one has to remember, and small runs in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torchrl.envs.utils import ExplorationType, set_exploration_type

from hooktrainer import Trainer, algorithms
from hooktrainer.loop import Progress
from hooktrainer.policies import PolicyRecorder, load_policy


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


def in_vain(memory: Any) -> set[str]:
    """The fields of memories that have no effect with this one."""
    if memory is None:
        return {"memory_size", "memory_length", "sequence_length", "burn_in"}
    return set() if memory == "transformer" else {"memory_length"}


def make(name: str, memory: Any = "gru", *, masked: bool = False, **options: Any) -> Trainer:
    """A small run in `Recall`."""
    kind = algorithms.get(name)
    known = {field.name for field in fields(kind)} - in_vain(memory)
    small = SMALL | (REPLAYED if "burn_in" in known else {})
    given = {key: value for key, value in small.items() if key in known}
    continuous = kind.actions in ("continuous", "bounded")
    return kind(
        env=partial(Recall, continuous, masked), **{**given, "memory": memory, **options}
    ).trainer()


def collect(trainer: Any, batches: int = 3) -> Any:
    """The last of several batches: episodes are running when it begins."""
    *_, batch = islice(trainer.collector, batches)
    trainer.shutdown()
    assert batch["is_init"][:, 1:].any()
    return batch


def assert_saved_acts_as_live(
    live: Any, hidden: Mapping[Any, torch.Tensor], make_env: Callable[[], gym.Env], path: Path
) -> None:
    """A policy that is saved in ``path`` acts as the live one, which begins with these states."""
    recorder = PolicyRecorder(path, live, make_env)
    recorder.save(Progress(frames=0, optim_steps=0, seconds=1.0))
    loaded = load_policy(path / f"step_{0:012d}", trust=True)
    assert loaded.recurrent
    env = make_env()
    for seed in range(3):
        loaded.reset()
        observation, _ = env.reset(seed=seed)
        data = TensorDict({"is_init": torch.ones(1, 1, dtype=torch.bool)}, [1])
        for key, first in hidden.items():
            data.set(key, first[None])
        ends = False
        while not ends:
            for key, value in observation.items():
                data.set(key, torch.as_tensor(value)[None])
            if "action_mask" in observation:
                data["action_mask"] = data["action_mask"].bool()
            with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
                live(data)
            action = loaded(observation)
            np.testing.assert_allclose(action, data["action"][0].numpy(), atol=1e-5)
            observation, _, terminated, truncated, _ = env.step(action)
            ends = terminated or truncated
            data.update(data["next"].clone())
            data["is_init"].zero_()
