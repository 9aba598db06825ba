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


class Recall(Match):
    """Each agent is shown a number in the first step alone, and earns 1 for naming it in all.

    Episodes last 3 to 8 steps, and every other one is truncated.

    Args:
        roles: As for `Match`.
        continuous: As for `Match`.
        leaves: Whether the second agent leaves after 2 steps.
        masked: Whether an action is forbidden that is wrong.
    """

    metadata: Any = {"name": "recall"}  # noqa: RUF012

    def __init__(
        self,
        roles: bool = False,
        continuous: bool = False,
        leaves: bool = False,
        masked: bool = False,
    ) -> None:
        super().__init__(continuous, roles)
        self.leaves, self.masked = leaves, masked

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        seen = spaces.Box(-10, 10, (5,), np.float32)
        mask = spaces.Box(0, 1, (3 + (self.roles and agent == "right"),), np.int8)
        return spaces.Dict({"observation": seen, "action_mask": mask}) if self.masked else seen

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.count, self.length = 0, int(self.random.integers(3, 9))
        self.shown = {agent: int(self.random.integers(3)) for agent in self.agents}
        return self._show(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.count += 1
        acted, over, cut = self.agents, self.count == self.length, bool(self.length % 2)
        rewards = {a: float(self._chosen(actions[a]) == self.shown[a]) for a in acted}
        gone = self.leaves and self.count == 2
        ends = {a: (over and not cut) or (gone and a == "right") for a in acted}
        cuts = dict.fromkeys(acted, over and cut)
        seen = self._show()
        self.agents = [a for a in acted if not ends[a] and not cuts[a]]
        return seen, rewards, ends, cuts, {agent: {} for agent in acted}

    def _show(self) -> dict[str, Any]:
        return {agent: self._seen_by(agent) for agent in self.agents}

    def _seen_by(self, agent: str) -> Any:
        shown = np.eye(3)[self.shown[agent]] * (self.count == 0)
        seen = np.array([*shown, self.count, self.random.normal()], np.float32)
        if not self.masked:
            return seen
        mask = np.ones(self.action_space(agent).n, np.int8)
        mask[(self.shown[agent] + 1) % 3] = self.random.integers(2)
        return {"observation": seen, "action_mask": mask}
