"""`AcrobotWorld`: swing up a double pendulum that is driven at its elbow."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import AcrobotEnv

from .functional_world import FunctionalWorld

_DT = 0.2  # seconds
_G = 9.8
_MAX_SPEEDS = (4 * math.pi, 9 * math.pi)


class AcrobotWorld(FunctionalWorld):
    """Gymnasium's ``Acrobot-v1`` (Sutton, 1996) as tensors, with the dynamics of Sutton and Barto.

    Args:
        num_envs: How many environments.
        device: Where they are simulated.
        **rest: As for `FunctionalWorld`.
    """

    name = "torch/Acrobot-v1"
    max_episode_steps = 500
    num_uniforms = 4

    def __init__(self, num_envs: int, device: torch.device | str = "cpu", **rest: Any) -> None:
        original = AcrobotEnv()
        self.observation_space: spaces.Space[Any] = original.observation_space
        self.action_space: spaces.Space[Any] = original.action_space
        super().__init__(num_envs, device, **rest)

    def initial(self, uniform: torch.Tensor) -> torch.Tensor:
        """Both links hanging down, nearly at rest, ``[num_envs, 4]``."""
        return 0.2 * uniform - 0.1

    def transition(
        self, state: Any, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A step of Runge and Kutta's, of 0.2 seconds."""
        torque = action - 1
        k1 = _derivative(state, torque)
        k2 = _derivative(state + (_DT / 2) * k1, torque)
        k3 = _derivative(state + (_DT / 2) * k2, torque)
        k4 = _derivative(state + _DT * k3, torque)
        moved = state + (_DT / 6) * (k1 + 2 * k2 + 2 * k3 + k4)
        angles = torch.remainder(moved[..., :2] + math.pi, 2 * math.pi) - math.pi
        first, second = angles.unbind(-1)
        speeds = [
            moved[..., 2 + i].clamp(-fastest, fastest) for i, fastest in enumerate(_MAX_SPEEDS)
        ]
        high = -first.cos() - (first + second).cos() > 1.0
        return torch.stack([first, second, *speeds], -1), high.to(state.dtype) - 1.0, high

    def observe(self, state: Any) -> torch.Tensor:
        """Cosine and sine of both angles, and the speeds, ``[num_envs, 6]``."""
        first, second, *speeds = state.unbind(-1)
        return torch.stack([first.cos(), first.sin(), second.cos(), second.sin(), *speeds], -1)


def _derivative(state: torch.Tensor, torque: torch.Tensor) -> torch.Tensor:
    """That of the state; both links are 1 long, weigh 1, and have 1 as moment of inertia."""
    first, second, first_speed, second_speed = state.unbind(-1)
    cos, sin = second.cos(), second.sin()
    d1, d2 = 3.5 + cos, 1.25 + 0.5 * cos
    phi2 = 0.5 * _G * (first + second).sin()
    phi1 = 1.5 * _G * first.sin() + phi2
    phi1 = phi1 - (0.5 * second_speed + first_speed) * second_speed * sin
    push = torque + d2 / d1 * phi1 - 0.5 * first_speed.square() * sin - phi2
    second_acc = push / (1.25 - d2.square() / d1)
    first_acc = -(d2 * second_acc + phi1) / d1
    return torch.stack([first_speed, second_speed, first_acc, second_acc], -1)
