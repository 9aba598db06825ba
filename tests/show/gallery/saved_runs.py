"""Runs with saved policies, and environments for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from hooktrainer import RunDir
from hooktrainer.loop import Progress
from hooktrainer.policies import PolicyRecorder

BALANCES = (0.1, 0.15, 1.0, 0.5)  # CartPole's pole stays up
FALLS = (0.0, 0.0, -1.0, 0.0)


class Threshold(nn.Module):
    """Goes right where a weighted sum of the observation is positive, else left."""

    def __init__(self, weights: Sequence[float]) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return (observation @ self.weights > 0).long()


class Still(nn.Module):
    """Takes the first action, or the middle one, whatever it sees."""

    def __init__(self, env: str) -> None:
        super().__init__()
        space = gym.make(env).action_space
        self.register_buffer("action", torch.zeros(space.shape or (), dtype=_dtype(space)))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.action.expand(len(observation), *self.action.shape)


def _dtype(space: gym.Space[Any]) -> torch.dtype:
    return torch.float32 if isinstance(space, gym.spaces.Box) else torch.int64


class Silent(gym.Env[Any, Any]):
    """Counts to five, and does not draw."""

    observation_space = gym.spaces.Box(-9.0, 9.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self._observation(), 2.0, self._steps == 5, False, {}

    def _observation(self) -> np.ndarray:
        return np.array([self._steps, -1.0, np.sin(self._steps)], np.float32)


class Drawing(Silent):
    """Draws: its pictures grow brighter with every step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.full((20, 30, 3), 40 * self._steps, np.uint8)


class Failing(Drawing):
    """Fails to draw."""

    def render(self) -> Any:
        raise RuntimeError("no light\nin here")


def write_run(
    path: Path, env: Any = "CartPole-v1", policies: Mapping[int, Sequence[float]] | None = None
) -> RunDir:
    """A finished run with saved policies, by default a bad and a good one for CartPole."""
    run = RunDir.create(path, experiment="toy", seed=3)
    run.write_config({"seed": 3, "lr": 0.1, "name": "<b>"})
    times = "100,time/step,0.1\n100,time/collect,0.04\n100,time/hook/mine,0.01\n"
    returns = "".join(f"{f},eval/return,{f / 10}\n{f},eval/return_std,2\n" for f in (100, 1000))
    run.metrics.write_text(f"step,name,value\n{returns}{times}")
    for frames, weights in (policies or {0: FALLS, 1000: BALANCES}).items():
        save_policy(run, env, frames, weights)
    run.update(status="finished", frames=1000, seconds=2.5)
    return run


def save_policy(run: RunDir, env: Any, frames: int, weights: Sequence[float]) -> None:
    """Save a policy as a run does."""
    recorder = PolicyRecorder(run.path / "policies", Threshold(weights), env)
    recorder.save(Progress(frames=frames, seconds=frames / 1000))
