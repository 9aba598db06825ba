"""Tensor worlds whose every number is known beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

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


class Decay(FunctionalWorld):
    """From s to s/2 + 1, which is the reward; truncated after 3 steps, and reset to 0.

    A value function is exact if it is ``SLOPE * s + OFFSET``, with a discount of ``GAMMA``.
    """

    name = "decay"
    observation_space = spaces.Box(0.0, 2.0, (1,))
    action_space = spaces.Box(-1.0, 1.0, (1,))
    max_episode_steps = 3
    GAMMA = 0.9
    SLOPE = 0.5 / (1 - 0.5 * GAMMA)
    OFFSET = (1 + GAMMA * SLOPE) / (1 - GAMMA)

    def initial(self, uniform):
        return torch.zeros(len(uniform), 1, device=uniform.device)

    def transition(self, state, action):
        following = state / 2 + 1
        reward = following.squeeze(-1)
        return following, reward, torch.zeros_like(reward, dtype=torch.bool)


class HiddenDecay(Decay):
    """The same as a simulator that does not show what its episodes end with."""

    lost = "the simulator does not show its state"

    def step(self, actions):
        return super().step(actions)._replace(final=None)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        return False


class Talker(FunctionalWorld):
    """Says things in its log, gives an action mask, and takes one of three actions.

    The number of the last action is observed; only the first and the third are allowed.
    """

    name = "talker"
    observation_space = spaces.Dict(
        {"last": spaces.Box(0.0, 3.0, (1,)), "action_mask": spaces.MultiBinary(3)}
    )
    action_space = spaces.Discrete(3, start=1)
    max_episode_steps = 2

    def initial(self, uniform):
        return torch.zeros(len(uniform), 1, device=uniform.device)

    def transition(self, state, action):
        last = action.unsqueeze(-1).float()
        return last, last.squeeze(-1), torch.zeros_like(action, dtype=torch.bool)

    def observe(self, state):
        mask = torch.tensor([True, False, True], device=state.device)
        return {"last": state, "action_mask": mask.expand(len(state), 3)}

    def step(self, actions):
        outcome = super().step(actions)
        return outcome._replace(
            log={
                "height": outcome.reward + 0.5,
                "rank": torch.arange(self.num_envs, device=self.device),
                "Episode/slips": outcome.reward.mean(),
            }
        )


class Wind(FunctionalWorld):
    """Discrete observations that do not count from 0, and episodes of very different lengths.

    State and observations have several entries.
    """

    name = "wind"
    observation_space = spaces.Dict(
        {"place": spaces.Discrete(9, start=-4), "speed": spaces.Box(-1.0, 1.0, (2,))}
    )
    action_space = spaces.Discrete(3, start=-1)
    max_episode_steps = 7
    num_uniforms = 2

    def initial(self, uniform: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"x": (9 * uniform[:, 0]).floor() - 4, "v": uniform - 0.5}

    def transition(self, state: Any, action: torch.Tensor) -> Any:
        x = state["x"] + action
        return {"x": x.clamp(-4, 4), "v": -state["v"]}, x * 0.1, x.abs() > 4

    def observe(self, state: Any) -> dict[str, torch.Tensor]:
        return {"place": state["x"].long(), "speed": state["v"]}


class Embedded(nn.Module):
    """Features of the observations of `Wind`, or scores of its actions."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.speed = nn.Embedding(9, 3), nn.Linear(2, 3)

    def forward(self, place: torch.Tensor, speed: torch.Tensor) -> torch.Tensor:
        return self.place(place) + self.speed(speed)
