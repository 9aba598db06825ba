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


class Cells(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Says that an image is a grid of cells, each the number of an object, a color and a state.

    A network then sees categories, where it would see brightness otherwise.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        from minigrid.core.constants import (
            COLOR_TO_IDX,
            DIR_TO_VEC,
            OBJECT_TO_IDX,
            STATE_TO_IDX,
        )

        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        parts: Any = env.observation_space
        numbers = [OBJECT_TO_IDX, COLOR_TO_IDX, STATE_TO_IDX]
        sizes = [max(number.values()) + 1 for number in numbers]
        sizes[-1] = max(sizes[-1], len(DIR_TO_VEC))  # the state of the agent is where it faces
        shape = parts["image"].shape
        cells = gym.spaces.MultiDiscrete(np.broadcast_to(sizes, shape), dtype=np.uint8)
        self.observation_space = gym.spaces.Dict({**parts.spaces, "image": cells})


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
    cells = wrapper(f"{__name__}:Cells")
    if _mission_varies(spec):
        return (wrapper("minigrid.wrappers:DictObservationSpaceWrapper"), cells)
    parts = gymnasiums("FilterObservation", "transform_observation", filter_keys=PARTS)
    return (parts, cells)


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
