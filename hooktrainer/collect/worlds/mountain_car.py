"""`MountainCarWorld` and `MountainCarContinuousWorld`: drive up a hill with too weak an engine."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import Continuous_MountainCarEnv, MountainCarEnv

from .functional_world import FunctionalWorld

_LEFT, _RIGHT = -1.2, 0.6
_MAX_SPEED = 0.07
_GRAVITY = 0.0025


class _Car(FunctionalWorld):
    """What both cars share.

    Args:
        num_envs: How many environments.
        device: Where they are simulated.
        goal_velocity: How fast the car has to be at the goal.
        **rest: As for `FunctionalWorld`.
    """

    num_uniforms = 1
    original: ClassVar[type[gym.Env[Any, Any]]]
    """Gymnasium's environment, whose spaces they have."""

    def __init__(
        self,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        goal_velocity: float = 0.0,
        **rest: Any,
    ) -> None:
        original = self.original()
        self.observation_space: spaces.Space[Any] = original.observation_space
        self.action_space: spaces.Space[Any] = original.action_space
        self._goal_velocity = goal_velocity
        super().__init__(num_envs, device, **rest)

    def initial(self, uniform: torch.Tensor) -> torch.Tensor:
        """Near the bottom, at rest, ``[num_envs, 2]``."""
        return torch.cat([0.2 * uniform - 0.6, torch.zeros_like(uniform)], -1)


class MountainCarWorld(_Car):
    """Gymnasium's ``MountainCar-v0`` (Moore, 1990) as tensors.

    Args:
        num_envs: How many environments.
        device: Where they are simulated.
        goal_velocity: How fast the car has to be at the goal.
        **rest: As for `FunctionalWorld`.
    """

    name = "torch/MountainCar-v0"
    max_episode_steps = 200
    original = MountainCarEnv

    def transition(
        self, state: Any, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Push left, not at all, or right."""
        following = _drive(state, (action - 1) * 0.001)
        position, speed = following.unbind(-1)
        arrived = (position >= 0.5) & (speed >= self._goal_velocity)
        return following, -torch.ones_like(position), arrived


class MountainCarContinuousWorld(_Car):
    """Gymnasium's ``MountainCarContinuous-v0`` as tensors.

    Args:
        num_envs: How many environments.
        device: Where they are simulated.
        goal_velocity: How fast the car has to be at the goal.
        **rest: As for `FunctionalWorld`.
    """

    name = "torch/MountainCarContinuous-v0"
    max_episode_steps = 999
    original = Continuous_MountainCarEnv

    def transition(
        self, state: Any, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Push with a force of at most 1, which costs what was asked for."""
        asked = action.squeeze(-1)
        following = _drive(state, asked.clamp(-1.0, 1.0) * 0.0015)
        position, speed = following.unbind(-1)
        arrived = (position >= 0.45) & (speed >= self._goal_velocity)
        return following, 100.0 * arrived - 0.1 * asked.square(), arrived


def _drive(state: torch.Tensor, push: torch.Tensor) -> torch.Tensor:
    """A step of the car; a wall on the left stops it."""
    position, speed = state.unbind(-1)
    speed = (speed + push - _GRAVITY * (3 * position).cos()).clamp(-_MAX_SPEED, _MAX_SPEED)
    position = (position + speed).clamp(_LEFT, _RIGHT)
    speed = torch.where(position <= _LEFT, speed.clamp(min=0.0), speed)
    return torch.stack([position, speed], -1)
