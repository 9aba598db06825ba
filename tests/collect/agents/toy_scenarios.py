"""Scenarios of VMAS whose every number can be worked out by hand."""

from __future__ import annotations

from typing import Any

import torch

from hooktrainer.collect.agents.vmas import import_vmas

import_vmas("toy_scenarios")

from vmas.simulator.core import Agent, Sphere, World  # noqa: E402
from vmas.simulator.scenario import BaseScenario  # noqa: E402


class Steps(BaseScenario):
    """Counts the steps of an episode; environment i ends in a terminal state after ``2 + i``.

    Observation of agent a: ``[start, steps, a]``, where ``start`` is drawn. Reward: ``steps * a``,
    where the agents count from 1.
    """

    def make_world(self, batch_dim: int, device: torch.device, **kwargs: Any) -> World:
        world = World(batch_dim, device)
        for number in range(kwargs.get("n_agents", 2)):
            world.add_agent(Agent(name=f"agent_{number}", shape=Sphere(0.01)))
        self.start = torch.zeros(batch_dim)
        self.count = torch.zeros(batch_dim)
        self.length = torch.arange(batch_dim) + 2.0
        return world

    def reset_world_at(self, env_index: int | None = None) -> None:
        rows = slice(None) if env_index is None else slice(env_index, env_index + 1)
        self.start[rows] = torch.rand(len(self.start[rows]))
        self.count[rows] = 0

    def post_step(self) -> None:
        self.count = self.count + 1

    def number(self, agent: Agent) -> float:
        return self.world.agents.index(agent) + 1.0

    def observation(self, agent: Agent) -> torch.Tensor:
        number = torch.full_like(self.count, self.number(agent))
        return torch.stack([self.start, self.count, number], -1)

    def reward(self, agent: Agent) -> torch.Tensor:
        return self.count * self.number(agent)

    def done(self) -> torch.Tensor:
        return self.count >= self.length


class CountsResets(Steps):
    """Its reset changes a number that is not one of an environment: what a curriculum does."""

    resets = 0

    def reset_world_at(self, env_index: int | None = None) -> None:
        self.resets = self.resets + 1
        super().reset_world_at(env_index)


class Expands(Steps):
    """Its reset of all environments leaves a tensor whose rows are one."""

    def reset_world_at(self, env_index: int | None = None) -> None:
        self.count = self.count.clone()
        super().reset_world_at(env_index)
        if env_index is None:
            self.count = torch.zeros(1).expand(self.world.batch_dim)


class Noisy(Steps):
    """Each look at it is another one, as through a sensor with noise."""

    def observation(self, agent: Agent) -> torch.Tensor:
        seen = super().observation(agent)
        return seen + torch.rand_like(seen)


class MakesAgents(Steps):
    """It makes objects in the course of an episode, which no saved state can tell of."""

    def post_step(self) -> None:
        super().post_step()
        self.goal = Agent(name="goal", shape=Sphere(0.01))
