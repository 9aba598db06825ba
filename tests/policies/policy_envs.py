"""Environments for the tests of saved policies, and policies of several agents."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from any_env import AnyEnv
from gymnasium import spaces

from hooktrainer.networks import (
    AgentMLP,
    AgentsPolicy,
    CategoricalPolicy,
    Policy,
    distribution_for,
    mlp,
)

sys.path.append(str(Path(__file__).parents[1] / "collect" / "agents"))

from toy_parallel import Leaving


def total(action: Any) -> float:
    """The sum of all numbers of an action."""
    if isinstance(action, (dict, tuple)):
        return sum(map(total, action.values() if isinstance(action, dict) else action))
    return float(np.sum(action))


class Toy(AnyEnv):
    """Draws every observation from its space; rewards the sum of the action; takes 3 to 6 steps."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, observation: Any = None, action: Any = None, mask: int = 0) -> None:
        seen = spaces.Box(-1.0, 1.0, (4,)) if observation is None else observation
        super().__init__(seen, spaces.Discrete(3) if action is None else action, mask)
        self.left = 0
        self.render_mode: str | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        seen, info = super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 7))
        return seen, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, _, _, _, info = super().step(action)
        self.left -= 1
        return seen, total(action) + self.left, self.left == 0, False, info

    def render(self) -> Any:
        return np.zeros((4, 4, 3), np.uint8) if self.render_mode == "rgb_array" else None


class Endless(Toy):
    """Never comes to the end of its first step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(120.0)
        raise AssertionError


class Broken(Toy):
    """Cannot be stepped."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        raise RuntimeError("the gears are stuck")


def pets(masked: bool = False, own: bool = False) -> AgentsPolicy:
    """Policies of `Leaving`: cats choose one of four, the dog gives a number."""
    torch.manual_seed(1)
    network = AgentMLP(2, 2, 4, (8,)) if own else mlp(2, 4, (8,))
    mask = ("cat", "action_mask") if masked else None
    space = Leaving().action_space("dog_0")
    return AgentsPolicy(
        {
            "cat": CategoricalPolicy(network, [("cat", "observation")], action_mask_key=mask),
            "dog": Policy(mlp(2, 1, (8,)), distribution_for(space), [("dog", "observation")]),
        }
    )
