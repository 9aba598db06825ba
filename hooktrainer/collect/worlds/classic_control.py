"""Gymnasium's classic control environments as tensors."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import gymnasium as gym
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)

from .functional_world import FunctionalWorld, Transition

_DT = 0.2  # seconds
_G = 9.8
_MAX_SPEEDS = (4 * math.pi, 9 * math.pi)


class _Classic(FunctionalWorld):
    """A Gymnasium environment as tensors, with its spaces and some of its arguments."""

    original: ClassVar[type[gym.Env[Any, Any]]]
    takes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, num_envs: int, **rest: Any) -> None:
        original = self.original()
        self.observation_space: spaces.Space[Any] = original.observation_space
        self.action_space: spaces.Space[Any] = original.action_space
        for name in self.takes:
            setattr(self, name, rest.pop(name, getattr(self, name)))
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name}={getattr(self, name)!r} is not a number")
        super().__init__(num_envs, **rest)


class AcrobotWorld(_Classic):
    """Gymnasium's ``Acrobot-v1`` (Sutton, 1996) as tensors, with Sutton and Barto's dynamics."""

    name = "torch/Acrobot-v1"
    max_episode_steps = 500
    num_uniforms = 4
    original = AcrobotEnv

    def initial(self, uniform: torch.Tensor) -> torch.Tensor:
        return 0.2 * uniform - 0.1

    def transition(self, state: Any, action: torch.Tensor) -> Transition:
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
        first, second, *speeds = state.unbind(-1)
        return torch.stack([first.cos(), first.sin(), second.cos(), second.sin(), *speeds], -1)


def _derivative(state: torch.Tensor, torque: torch.Tensor) -> torch.Tensor:
    """The derivative of the state; both links have length, mass and moment of inertia 1."""
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


# -- `CartPoleWorld`: balance a pole on a cart.

_GRAVITY = 9.8
_POLE_MASS = 0.1
_MASS = 1.1  # of cart and pole
_LENGTH = 0.5  # of half the pole
_FORCE = 10.0
_TAU = 0.02  # seconds
_FAR = 2.4
_TILTED = 12 * 2 * math.pi / 360


class CartPoleWorld(_Classic):
    """Gymnasium's ``CartPole-v1`` (Barto, Sutton and Anderson, 1983) as tensors.

    With ``sutton_barto_reward`` the reward is -1 when the pole falls and else 0, not always 1.
    """

    name = "torch/CartPole-v1"
    max_episode_steps = 500
    num_uniforms = 4
    original = CartPoleEnv
    takes = ("sutton_barto_reward",)
    sutton_barto_reward = False

    def initial(self, uniform: torch.Tensor) -> torch.Tensor:
        return 0.1 * uniform - 0.05

    def transition(self, state: Any, action: torch.Tensor) -> Transition:
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
        if self.sutton_barto_reward:
            return following, -fallen.to(state.dtype), fallen
        return following, torch.ones_like(x), fallen


# -- `MountainCarWorld` and `MountainCarContinuousWorld`: drive up a hill with too weak an engine.

_LEFT, _RIGHT = -1.2, 0.6
_CAR_MAX_SPEED = 0.07
_CAR_GRAVITY = 0.0025


class _Car(_Classic):
    """The common part of both cars."""

    num_uniforms = 1
    takes = ("goal_velocity",)
    goal_velocity = 0.0

    def initial(self, uniform: torch.Tensor) -> torch.Tensor:
        return torch.cat([0.2 * uniform - 0.6, torch.zeros_like(uniform)], -1)


class MountainCarWorld(_Car):
    """Gymnasium's ``MountainCar-v0`` (Moore, 1990) as tensors."""

    name = "torch/MountainCar-v0"
    max_episode_steps = 200
    original = MountainCarEnv

    def transition(self, state: Any, action: torch.Tensor) -> Transition:
        following = _drive(state, (action - 1) * 0.001)
        position, speed = following.unbind(-1)
        arrived = (position >= 0.5) & (speed >= self.goal_velocity)
        return following, -torch.ones_like(position), arrived


class MountainCarContinuousWorld(_Car):
    """Gymnasium's ``MountainCarContinuous-v0`` as tensors."""

    name = "torch/MountainCarContinuous-v0"
    max_episode_steps = 999
    original = Continuous_MountainCarEnv

    def transition(self, state: Any, action: torch.Tensor) -> Transition:
        """Push with a force of at most 1; the cost is that of the action before clipping."""
        asked = action.squeeze(-1)
        following = _drive(state, asked.clamp(-1.0, 1.0) * 0.0015)
        position, speed = following.unbind(-1)
        arrived = (position >= 0.45) & (speed >= self.goal_velocity)
        return following, 100.0 * arrived - 0.1 * asked.square(), arrived


def _drive(state: torch.Tensor, push: torch.Tensor) -> torch.Tensor:
    """A step of the car; a wall on the left stops it."""
    position, speed = state.unbind(-1)
    speed = (speed + push - _CAR_GRAVITY * (3 * position).cos()).clamp(
        -_CAR_MAX_SPEED, _CAR_MAX_SPEED
    )
    position = (position + speed).clamp(_LEFT, _RIGHT)
    speed = torch.where(position <= _LEFT, speed.clamp(min=0.0), speed)
    return torch.stack([position, speed], -1)


# -- `PendulumWorld`: swing up a pendulum.

_PENDULUM_MAX_SPEED = 8.0
_MAX_TORQUE = 2.0
_PENDULUM_DT = 0.05  # seconds


class PendulumWorld(_Classic):
    """Gymnasium's ``Pendulum-v1`` as tensors."""

    name = "torch/Pendulum-v1"
    max_episode_steps = 200
    num_uniforms = 2
    original = PendulumEnv
    takes = ("g",)
    g = 10.0

    def initial(self, uniform: torch.Tensor) -> torch.Tensor:
        angle, speed = uniform.unbind(-1)
        return torch.stack([2 * math.pi * angle - math.pi, 2 * speed - 1], -1)

    def transition(self, state: Any, action: torch.Tensor) -> Transition:
        """A step of 50 milliseconds; there is no terminal state."""
        angle, speed = state.unbind(-1)
        torque = action.squeeze(-1).clamp(-_MAX_TORQUE, _MAX_TORQUE)
        off = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        cost = off.square() + 0.1 * speed.square() + 0.001 * torque.square()
        speed = (speed + (1.5 * self.g * angle.sin() + 3.0 * torque) * _PENDULUM_DT).clamp(
            -_PENDULUM_MAX_SPEED, _PENDULUM_MAX_SPEED
        )
        angle = angle + speed * _PENDULUM_DT
        return torch.stack([angle, speed], -1), -cost, torch.zeros_like(angle, dtype=torch.bool)

    def observe(self, state: Any) -> torch.Tensor:
        angle, speed = state.unbind(-1)
        return torch.stack([angle.cos(), angle.sin(), speed], -1)
