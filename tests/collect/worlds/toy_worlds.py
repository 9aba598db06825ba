"""Tensor worlds whose every number is known beforehand."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces

from hooktrainer.collect.worlds import FunctionalWorld


class Ladder(FunctionalWorld):
    """Climbs a rung a step, whatever is done; the reward is the rung, and the limit 4 steps."""

    name = "ladder"
    observation_space = spaces.Box(0.0, np.inf, (1,))
    action_space = spaces.Discrete(2)
    max_episode_steps = 4

    def initial(self, uniform: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(uniform), 1, device=uniform.device)

    def transition(self, state, action):
        rung = state + 1
        return rung, rung.squeeze(-1), torch.zeros_like(action, dtype=torch.bool)
