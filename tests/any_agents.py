"""An environment of several agents that can be learned in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


class Match:
    """Each agent is shown a number, drawn from the seed, and earns 1 for choosing it; 5 steps.

    Args:
        continuous: Whether a number is chosen as the nearest to ``[-1, 1]`` in one dimension.
        roles: Whether the second agent has one choice more, which makes two groups.
    """

    metadata: Any = {"name": "match"}  # noqa: RUF012
    possible_agents = ("left", "right")

    def __init__(self, continuous: bool = False, roles: bool = False) -> None:
        self.continuous, self.roles = continuous, roles
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (3,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        if self.continuous:
            return spaces.Box(-1, 1, (1,), np.float32)
        return spaces.Discrete(3 + (self.roles and agent == "right"))

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.count = 0
        return self._show(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.count += 1
        acted = self.agents
        rewards = {
            agent: float(self._chosen(actions[agent]) == self.shown[agent]) for agent in acted
        }
        done = self.count == 5
        seen, ends, infos = self._show(), dict.fromkeys(acted, done), {a: {} for a in acted}
        self.agents = [] if done else acted
        return seen, rewards, dict.fromkeys(acted, False), ends, infos

    def close(self) -> None: ...

    def _chosen(self, action: Any) -> int:
        return int(np.rint(action[0] + 1)) if self.continuous else int(action)

    def _show(self) -> dict[str, Any]:
        self.shown = {agent: int(self.random.integers(3)) for agent in self.agents}
        return {agent: np.eye(3, dtype=np.float32)[number] for agent, number in self.shown.items()}
