"""An environment of PettingZoo whose agents act in turns, and whose numbers follow by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv


class Turns(AECEnv):
    """Three agents take turns; step n earns every agent n, and agent a (from 0) 100 a more.

    Agent 2 is over after step 4, which agent 0 makes; it earns once more before its last turn. The
    episode ends with step 8, or is cut there. Observation: ``[number, steps]``. Of 3 actions the
    mask forbids one, and those who wait all.
    """

    metadata: Any = {"name": "turns"}  # noqa: RUF012
    render_mode = None

    def __init__(self, cut: bool = False, masks: bool = True) -> None:
        super().__init__()
        self.cut, self.masks = cut, masks
        self.possible_agents = ["a_0", "a_1", "a_2"]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        seen = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        mask = spaces.Box(0, 1, (3,), np.int8)
        return spaces.Dict({"observation": seen, "action_mask": mask}) if self.masks else seen

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def observe(self, agent: str) -> Any:
        seen = np.array([self.number, self.count], np.float32)
        mask = np.ones(3, np.int8) * (agent == self.agent_selection)
        mask[self.count % 3] = 0
        return {"observation": seen, "action_mask": mask} if self.masks else seen

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.number = np.random.default_rng(seed).integers(1000)
        self.agents = list(self.possible_agents)
        self.count = 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        following = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            if self.agents:
                self.agent_selection = following
            return
        assert not self.masks or action != self.count % 3
        self.count += 1
        place = self.possible_agents.index
        self.rewards = {agent: self.count + 100.0 * place(agent) for agent in self.agents}
        if self.count == 4:
            self.terminations["a_2"] = True
        if self.count == 8:
            ends = self.truncations if self.cut else self.terminations
            ends.update(dict.fromkeys(self.agents, True))
        self.agent_selection = following

    def close(self) -> None: ...
