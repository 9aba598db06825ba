"""`CartPoleWorld`: balance a pole on a cart."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

from .functional_world import FunctionalWorld

_GRAVITY = 9.8
_POLE_MASS = 0.1
_MASS = 1.1  # of cart and pole
_LENGTH = 0.5  # of half the pole
_FORCE = 10.0
_TAU = 0.02  # seconds
_FAR = 2.4
_TILTED = 12 * 2 * math.pi / 360


class CartPoleWorld(FunctionalWorld):
    """Gymnasium's ``CartPole-v1`` (Barto, Sutton and Anderson, 1983) as tensors.

    Args:
        num_envs: How many environments.
        device: Where they are simulated.
        sutton_barto_reward: Whether the reward is -1 where the pole falls and else 0, not always 1.
        **rest: As for `FunctionalWorld`.
    """

    name = "torch/CartPole-v1"
    max_episode_steps = 500
    num_uniforms = 4

    def __init__(
        self,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        sutton_barto_reward: bool = False,
        **rest: Any,
    ) -> None:
        original = CartPoleEnv()
        self.observation_space: spaces.Space[Any] = original.observation_space
        self.action_space: spaces.Space[Any] = original.action_space
        self._sutton_barto_reward = sutton_barto_reward
        super().__init__(num_envs, device, **rest)

    def initial(self, uniform: torch.Tensor) -> torch.Tensor:
        """Cart and pole nearly at rest, ``[num_envs, 4]``."""
        return 0.1 * uniform - 0.05

    def transition(
        self, state: Any, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A step of Euler's, of 20 milliseconds."""
        x, x_dot, theta, theta_dot = state.unbind(-1)
        cos, sin = theta.cos(), theta.sin()
        # 2 action - 1 is the direction; the force and the centrifugal force of the pole, by mass
        push = action * (2 * _FORCE / _MASS) - _FORCE / _MASS
        push = push + (_POLE_MASS * _LENGTH / _MASS) * theta_dot.square() * sin
        theta_acc = (_GRAVITY * sin - cos * push) / (
            _LENGTH * 4 / 3 - (_LENGTH * _POLE_MASS / _MASS) * cos.square()
        )
        x_acc = push - (_POLE_MASS * _LENGTH / _MASS) * theta_acc * cos
        following = state + _TAU * torch.stack([x_dot, x_acc, theta_dot, theta_acc], -1)
        fallen = (following[..., 0].abs() > _FAR) | (following[..., 2].abs() > _TILTED)
        if self._sutton_barto_reward:
            return following, -fallen.to(state.dtype), fallen
        return following, torch.ones_like(x), fallen
