"""`VmasParallel`: one environment of VMAS as a parallel environment of PettingZoo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from .vmas import VmasWorld
from .world import Entries

ByAgent = dict[str, Any]


class VmasParallel:
    """One environment of VMAS, in the manner of PettingZoo's parallel environments.

    Args:
        scenario: As for `VmasWorld`.
        render_mode: ``"rgb_array"``, ``"human"`` or ``None``.
        **kwargs: Arguments of ``vmas.make_env`` and of the scenario; see `VmasWorld`.

    Attributes:
        agents: Those that act now; none when the episode has ended.

    Raises:
        ConfigError: If there is no such scenario, or it cannot be made.
        MissingPackageError: If VMAS is not installed.
    """

    def __init__(self, scenario: Any, render_mode: str | None = None, **kwargs: Any) -> None:
        self._world = VmasWorld(scenario, 1, kwargs=kwargs)
        self.render_mode = render_mode
        self.metadata = {
            "name": self._world.name,
            "render_modes": ["human", "rgb_array"],
            "render_fps": self._world.fps,
        }
        self._group_of = {agent: group for group in self._world.groups for agent in group.agents}
        self.possible_agents = list(self._group_of)
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The observations of an agent."""
        return self._group_of[agent].observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """The actions of an agent."""
        return self._group_of[agent].action_space

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[ByAgent, ByAgent]:
        """Begin an episode.

        Args:
            seed: Its seed; ``None`` to go on with the numbers of the last one.
            options: There are none.

        Returns:
            What each agent observes, and an empty dict for each.
        """
        if seed is not None:
            self._world.seed(seed)
        self.agents = list(self.possible_agents)
        return self._observed(self._world.reset()), self._infos()

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Step; all agents act until the episode ends.

        Returns:
            Observation, reward, end, truncation and an empty dict of each agent.
        """
        acted = self.agents
        step = self._world.step(
            {
                group.name: torch.as_tensor(np.stack([actions[a] for a in group.agents]))[None]
                for group in self._world.groups
            }
        )
        rewards = {
            agent: float(step.rewards[group.name][0, place])
            for group in self._world.groups
            for place, agent in enumerate(group.agents)
        }
        ended, cut = bool(step.terminated[0]), bool(step.truncated[0])
        if ended or cut:
            self.agents = []
        if self.render_mode == "human":
            self.render()
        return (
            self._observed(step.entries),
            rewards,
            dict.fromkeys(acted, ended),
            dict.fromkeys(acted, cut),
            self._infos(),
        )

    def render(self) -> Any:
        """Draw: the picture, uint8 ``[height, width, 3]``; nothing but a window with ``"human"``.

        Raises:
            Exception: Whatever the drawing library raises, where there is no screen for example.
        """
        return None if self.render_mode is None else self._world.render(self.render_mode)

    def close(self) -> None:
        """Close the window, if there is one."""
        self._world.close()

    def _infos(self) -> ByAgent:
        return {agent: {} for agent in self.possible_agents}

    def _observed(self, entries: Entries) -> ByAgent:
        """By agent what it observes, as its space has it."""
        seen: ByAgent = {}
        for group in self._world.groups:
            for place, agent in enumerate(group.agents):
                for key, leaf in zip(group.keys, group.leaves, strict=True):
                    value = entries[key][0, place].numpy()
                    if not leaf.path:
                        seen[agent] = value
                        continue
                    inner = seen.setdefault(agent, {})
                    for part in leaf.path[:-1]:
                        inner = inner.setdefault(part, {})
                    inner[leaf.path[-1]] = value
        return seen
