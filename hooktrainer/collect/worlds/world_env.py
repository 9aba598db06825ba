"""`WorldEnv`: one environment of a tensor world as one of Gymnasium's, to be played and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tensordict import unravel_key

from ...base.space_parts import leaves_of
from ...base.tensordicts import nested
from ..action_format import ActionFormat
from .functional_world import FunctionalWorld
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
        leaves = leaves_of(world.observation_space)
        self._leaves = [(unravel_key(leaf.key), leaf.path) for leaf in leaves]
        self._dtype = ActionFormat(world.action_space).dtype
        self._last: tuple[Any, torch.Tensor] | None = None  # a carry, and the action that followed
        draws = isinstance(world, FunctionalWorld) and hasattr(world, "render")
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
        self._last = None
        return self._arrays(self._world.reset()), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        world = self._world
        taken = torch.as_tensor(np.asarray(action, self._dtype)[None]).to(world.device)
        self._last = getattr(world, "carry", None), taken
        outcome = world.step(taken)
        seen = outcome.observation if outcome.final is None else outcome.final
        ends = bool(outcome.terminated), bool(outcome.truncated)
        return self._arrays(seen), float(outcome.reward), *ends, {}

    def render(self) -> Any:
        world: Any = self._world
        # The step that ends an episode begins the next one.
        state = world.carry.state if self._last is None else world.moved(*self._last)[0]
        return np.asarray(world.render(state))

    def close(self) -> None:
        self._world.close()

    def _arrays(self, observations: Observations) -> Any:
        """The observation as the space has it, nested."""
        arrays: dict[Any, Any] = {
            path: observations[key][0].cpu().numpy() for key, path in self._leaves
        }
        return arrays[()] if () in arrays else nested(arrays)
