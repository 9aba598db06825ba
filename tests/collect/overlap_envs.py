"""Policies and environments whose batches show which weights collected them."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from toy_envs import Counter

from hooktrainer import VectorCollector


class Stamp(nn.Module):
    """Writes its weight into every transition, and a random number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def act(self, observation: torch.Tensor) -> dict[str, torch.Tensor]:
        number = len(observation)
        return {
            "action": torch.zeros(number, dtype=torch.int64),
            "weight": self.weight.detach().expand(number),
            "noise": torch.rand(number),
        }

    def train_once(self) -> None:
        with torch.no_grad():
            self.weight += 1.0


class Faulty(Counter):
    """Raises an error of its own at the eleventh step, or ends its process."""

    def __init__(self, fault: str = "raise") -> None:
        super().__init__(length=4)
        self.fault, self.steps = fault, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 11:
            if self.fault == "exit":
                os._exit(7)
            raise SimulatorError("the simulator is on fire")
        return super().step(action)


class SimulatorError(Exception):
    """What an environment may raise."""


class Slow(Counter):
    """Waits in every step."""

    def __init__(self, seconds: float) -> None:
        super().__init__(length=5)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return super().step(action)


class Pictures(Counter):
    """Shows a picture of its own in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(0, 255, (3, 64, 64), np.uint8)

    def _observe(self) -> Any:
        return self.np_random.integers(0, 255, (3, 64, 64), np.uint8)


def waits_for_ever() -> gym.Env[Any, Any]:
    return Slow(3600.0)


def raises() -> gym.Env[Any, Any]:
    return Faulty("raise")


def exits() -> gym.Env[Any, Any]:
    return Faulty("exit")


def plain(policy: Any = None, env: Any = Counter, **options: Any) -> VectorCollector:
    """Batches ``[2, 4]``."""
    options = {"num_envs": 2, "frames_per_batch": 8, "seed": 5} | options
    return VectorCollector(env, policy, **options)
