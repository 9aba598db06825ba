"""Checks of what an algorithm is called with: one clear error each, before anything is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
from gymnasium import spaces

from ..errors import ConfigError

Actions = Literal["continuous", "discrete", "any"]

_INSTEAD: Mapping[Actions, str] = {
    "continuous": "dqn, ppo, a2c and reinforce take discrete actions",
    "discrete": "sac, td3, ddpg, ppo, a2c and reinforce take continuous ones",
    "any": "one discrete action, or a vector of continuous ones, would fit",
}


def check_env(algorithm: str, env: Any) -> None:
    """Refuse what cannot be built twice: the policy is evaluated in environments of its own.

    Raises:
        ConfigError: If the environment is built already.
    """
    if isinstance(env, (gym.Env, gym.vector.VectorEnv)):
        raise ConfigError(
            f"{algorithm}: env={env!r} is built already; give its id, or a function that builds "
            "one, since the policy is evaluated in environments of its own."
        )


def check_observations(algorithm: str, env_name: str, space: spaces.Space[Any]) -> int:
    """The size of an observation.

    Raises:
        ConfigError: If observations are no vectors.
    """
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return int(space.shape[0])
    raise ConfigError(
        f"{algorithm} makes networks of one vector, but the observations of {env_name} are "
        f"{space}. Flatten them with gymnasium.wrappers.FlattenObservation, or give Trainer "
        "networks of your own."
    )


def check_actions(algorithm: str, env_name: str, space: spaces.Space[Any], wanted: Actions) -> int:
    """The number of discrete actions, or the size of a continuous one.

    Raises:
        ConfigError: If the algorithm cannot take such actions.
    """
    if isinstance(space, spaces.Discrete) and wanted != "continuous":
        return int(space.n)
    if isinstance(space, spaces.Box) and wanted != "discrete" and len(space.shape) == 1:
        if wanted == "any" or space.is_bounded():
            return int(space.shape[0])
        raise ConfigError(
            f"{algorithm} needs bounded actions, but those of {env_name} are {space}. Bound them "
            "with a wrapper of your own."
        )
    kind = "discrete or continuous" if wanted == "any" else wanted
    raise ConfigError(
        f"{algorithm} is for {kind} actions, but those of {env_name} are {space}: "
        f"{_INSTEAD[wanted]}."
    )


def name_of(env: Any) -> str:
    """What an environment, given by id, specification, factory or factories, is called."""
    if isinstance(env, str):
        return env
    if isinstance(env, Sequence):
        return ", ".join(map(name_of, env))
    return str(getattr(env, "id", None) or getattr(env, "__qualname__", type(env).__name__))
