"""MiniGrid and BabyAI: the image and the direction; the mission where it says something.

An image is no picture: each of its cells is the number of an object, a color and a state.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs

from .family import Family, Wrappers, gymnasiums, wrapper

PARTS = ["image", "direction"]
LARGEST = 10  # the number of the last object


class CellBounds(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Says how large the numbers in an image can be, so that they are not scaled as colors are."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        parts: Any = env.observation_space
        image = gym.spaces.Box(0, LARGEST, parts["image"].shape, np.uint8)
        self.observation_space = gym.spaces.Dict({**parts.spaces, "image": image})


def _mission_varies(spec: EnvSpec) -> bool:
    """Whether one episode's mission can be another than the next one's."""
    if spec.id.startswith("BabyAI-"):
        return True
    made = gym.make(spec, disable_env_checker=True)
    try:
        space: Any = made.observation_space
        return bool(space["mission"].ordered_placeholders)
    finally:
        made.close()


def _wrappers(spec: EnvSpec, training: bool) -> Wrappers:
    bounds = wrapper(f"{__name__}:CellBounds")
    if _mission_varies(spec):
        return (wrapper("minigrid.wrappers:DictObservationSpaceWrapper"), bounds)
    parts = gymnasiums("FilterObservation", "transform_observation", filter_keys=PARTS)
    return (parts, bounds)


def _says(spec: EnvSpec) -> str:
    if _mission_varies(spec):
        return "image, direction, and the mission as the numbers of its words"
    return "image and direction, without the mission, which is always the same"


FAMILY = Family(
    name="MiniGrid",
    ids=r"MiniGrid-|BabyAI-",
    wrappers=_wrappers,
    says=_says,
)
