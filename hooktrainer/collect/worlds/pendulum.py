"""`PendulumWorld`: swing up a pendulum."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import PendulumEnv

from .functional_world import FunctionalWorld

_MAX_SPEED = 8.0
_MAX_TORQUE = 2.0
_DT = 0.05  # seconds


class PendulumWorld(FunctionalWorld):
    """Gymnasium's ``Pendulum-v1`` as tensors.

    Args:
        num_envs: How many environments.
        device: Where they are simulated.
        g: Acceleration of gravity.
        **rest: As for `FunctionalWorld`.
    """

    name = "torch/Pendulum-v1"
    max_episode_steps = 200
    num_uniforms = 2

    def __init__(
        self, num_envs: int, device: torch.device | str = "cpu", *, g: float = 10.0, **rest: Any
    ) -> None:
        original = PendulumEnv()
        self.observation_space: spaces.Space[Any] = original.observation_space
        self.action_space: spaces.Space[Any] = original.action_space
        self._g = g
        super().__init__(num_envs, device, **rest)

    def initial(self, uniform: torch.Tensor) -> torch.Tensor:
        """Any angle, and a speed of at most 1, ``[num_envs, 2]``."""
        angle, speed = uniform.unbind(-1)
        return torch.stack([2 * math.pi * angle - math.pi, 2 * speed - 1], -1)

    def transition(
        self, state: Any, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A step of 50 milliseconds; there is no terminal state."""
        angle, speed = state.unbind(-1)
        torque = action.squeeze(-1).clamp(-_MAX_TORQUE, _MAX_TORQUE)
        off = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        cost = off.square() + 0.1 * speed.square() + 0.001 * torque.square()
        speed = (speed + (1.5 * self._g * angle.sin() + 3.0 * torque) * _DT).clamp(
            -_MAX_SPEED, _MAX_SPEED
        )
        angle = angle + speed * _DT
        return torch.stack([angle, speed], -1), -cost, torch.zeros_like(angle, dtype=torch.bool)

    def observe(self, state: Any) -> torch.Tensor:
        """Cosine and sine of the angle, and the speed, ``[num_envs, 3]``."""
        angle, speed = state.unbind(-1)
        return torch.stack([angle.cos(), angle.sin(), speed], -1)
