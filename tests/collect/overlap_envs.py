"""Policies and environments whose batches show which weights collected them."""

from __future__ import annotations

import time
from typing import Any

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
    """Raises an error of its own at the eleventh step."""

    def __init__(self) -> None:
        super().__init__(length=4)
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 11:
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


def plain(policy: Any = None, env: Any = Counter, **options: Any) -> VectorCollector:
    """Batches ``[2, 4]``."""
    options = {"num_envs": 2, "frames_per_batch": 8, "seed": 5} | options
    return VectorCollector(env, policy, **options)
