"""Clipping the continuous parts of a dict or tuple of actions, as Gymnasium does it for a Box."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs


class ClipParts(gym.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """Clips every Box in a Dict or Tuple of actions to its bounds.

    Args:
        env: The environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def action(self, action: Any) -> Any:
        """The action with all its continuous parts within their bounds."""
        return _clip(self.env.action_space, action)


def clipped(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """An environment that clips continuous actions, or parts of them, to their bounds."""
    if isinstance(env.action_space, spaces.Box):
        return gym.wrappers.ClipAction(env)
    return ClipParts(env)


def clips(layer: Any) -> bool:
    """Whether a wrapper is one of these."""
    return isinstance(layer, gym.wrappers.ClipAction | ClipParts)


def _clip(space: spaces.Space[Any], action: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _clip(part, action[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_clip(part, each) for part, each in zip(space.spaces, action, strict=True))
    return np.clip(action, space.low, space.high) if isinstance(space, spaces.Box) else action
