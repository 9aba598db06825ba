"""`WorldEnv`: one environment of a tensor world as one of Gymnasium's, to be played and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from ...base.space_parts import leaves_of
from .functional_world import EpisodicWorld
from .tensor_world import Observations, TensorWorld


class WorldEnv(gym.Env[Any, Any]):
    """A tensor world of one environment, stepped with the arrays that its spaces describe.

    ``render(state)`` of a `FunctionalWorld` draws it.

    Args:
        world: The world, which has one environment.
    """

    def __init__(self, world: TensorWorld) -> None:
        self._world = world
        self.observation_space, self.action_space = world.observation_space, world.action_space
        self._leaves = leaves_of(world.observation_space)
        draws = isinstance(world, EpisodicWorld) and hasattr(world, "render")
        self.metadata = {
            "render_modes": ["rgb_array"] if draws else [],
            "render_fps": getattr(world, "render_fps", None),
        }

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._world.seed(seed)
        return self._arrays(self._world.reset()), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        world = self._world
        outcome = world.step(torch.as_tensor(np.asarray(action)[None]).to(world.device))
        seen = outcome.observation if outcome.final is None else outcome.final
        ends = bool(outcome.terminated), bool(outcome.truncated)
        return self._arrays(seen), float(outcome.reward), *ends, {}

    def render(self) -> Any:
        world: Any = self._world
        return np.asarray(world.render(world.carry.state))

    def close(self) -> None:
        self._world.close()

    def _arrays(self, observations: Observations) -> Any:
        """The observation as the space has it, nested."""
        observed: dict[Any, Any] = {}
        for leaf in self._leaves:
            key: Any = leaf.key if len(leaf.key) > 1 else leaf.key[0]
            value = observations[key][0].cpu().numpy()
            if not leaf.path:
                return value
            *outer, last = leaf.path
            place = observed
            for name in outer:
                place = place.setdefault(name, {})
            place[last] = value
        return observed
