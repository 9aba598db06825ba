"""Parallel environments in PettingZoo's manner whose every number can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


class Leaving:
    """Agent a of three leaves after ``2 + a`` steps; the first two are ``cat``, the last ``dog``.

    Observation: ``[start, steps]``, where ``start`` is drawn from the seed. Reward: ``10 a +`` the
    cat's action, where agents count from 1; the dog's action is continuous. With a limit the rest
    are truncated.
    """

    metadata: Any = {"name": "leaving"}  # noqa: RUF012
    possible_agents = ("cat_0", "cat_1", "dog_0")

    def __init__(self, limit: int = 99, masks: str = "", forgets: bool = False) -> None:
        self.limit, self.masks, self.forgets = limit, masks, forgets
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        seen = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        if self.masks == "observation" and agent != "dog_0":
            mask = spaces.Box(0, 1, (4,), np.int8)
            return spaces.Dict({"observation": seen, "action_mask": mask})
        return seen

    def action_space(self, agent: str) -> spaces.Space[Any]:
        if agent == "dog_0":
            return spaces.Box(-1, 1, (1,), np.float32)
        return spaces.Discrete(4, start=1)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.start = float(self.random.integers(1000))
        self.agents = list(self.possible_agents)
        self.count = 0
        return self._seen(), self._infos()

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents)
        self.count += 1
        acted = list(self.agents)
        place = {agent: number for number, agent in enumerate(self.possible_agents)}
        rewards = {
            a: 10.0 * (place[a] + 1) + (float(actions[a]) if a != "dog_0" else 0.0) for a in acted
        }
        if self.forgets and self.count == 2:
            rewards.pop("cat_1")
        ends = {a: self.count >= 2 + place[a] for a in acted}
        cuts = {a: self.count >= self.limit and not ends[a] for a in acted}
        seen, infos = self._seen(), self._infos()
        self.agents = [a for a in acted if not ends[a] and not cuts[a]]
        return seen, rewards, ends, cuts, infos

    def state(self) -> Any:
        return np.array([self.start, self.count, len(self.agents)])

    def close(self) -> None:
        pass

    def _mask(self) -> Any:
        mask = np.zeros(4, np.int8)
        mask[self.count % 4] = self.masks != "nothing" or self.count != 1
        return mask

    def _infos(self) -> dict[str, Any]:
        info = {"action_mask": self._mask()} if self.masks == "info" else {}
        return {agent: dict(info) for agent in self.agents}

    def _seen(self) -> dict[str, Any]:
        seen = np.array([self.start, self.count])
        if self.masks in ("observation", "nothing"):
            masked = {"observation": seen, "action_mask": self._mask()}
            return {a: seen if a == "dog_0" else masked for a in self.agents}
        return dict.fromkeys(self.agents, seen)


class Talking(Leaving):
    """Who acts says ``10 a + steps``, where agents count from 1; the dog also at its end."""

    def step(self, actions: dict[str, Any]) -> Any:
        acted = list(self.agents)
        seen, rewards, ends, cuts, _ = super().step(actions)
        place = {agent: number for number, agent in enumerate(self.possible_agents)}
        infos: dict[str, Any] = {
            a: {"height": np.array([10 * (place[a] + 1) + self.count])} for a in acted
        }
        if ends.get("dog_0"):
            infos["dog_0"]["won"] = True
        return seen, rewards, ends, cuts, infos


class Staying(Leaving):
    """Keeps those that have ended in `agents`."""

    def step(self, actions: dict[str, Any]) -> Any:
        acted = self.agents
        outcome = super().step(actions)
        self.agents = acted
        return outcome


class Nothing(Leaving):
    """In the second step its mask forbids every action."""

    def __init__(self) -> None:
        super().__init__(masks="nothing")

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return Leaving(masks="observation").observation_space(agent)


class Drawn(Leaving):
    """Its start is drawn from a generator that no seed reaches."""

    drawn = 0

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        out = super().reset(seed, options)
        Drawn.drawn += 1
        self.start = float(Drawn.drawn)
        return self._seen(), out[1]
