"""Checks of what an algorithm is called with: one clear error each, before anything is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
from gymnasium import spaces

from ..base.space_parts import leaves_of, parts_of
from ..errors import ConfigError

Actions = Literal["continuous", "discrete", "any"]
Observations = Literal["vector", "any"]

_INSTEAD: Mapping[Actions, str] = {
    "continuous": "dqn, ppo, a2c and reinforce take discrete actions",
    "discrete": "sac, td3, ddpg, ppo, a2c and reinforce take continuous ones",
    "any": "Discrete, MultiDiscrete, MultiBinary, Box, Dict and Tuple would fit",
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


def check_observations(
    algorithm: str, env_name: str, space: spaces.Space[Any], wanted: Observations
) -> None:
    """Refuse observations that the algorithm has no networks for.

    Raises:
        ConfigError: If they are of an unknown kind, or no vectors where these are wanted.
    """
    try:
        leaves_of(space)
    except ConfigError as error:
        raise ConfigError(f"{algorithm}: {env_name}: {error}") from None
    if wanted == "vector" and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
        raise ConfigError(
            f"{algorithm} makes networks of one vector, but the observations of {env_name} are "
            f"{space}. Flatten them with gymnasium.wrappers.FlattenObservation."
        )


def check_actions(algorithm: str, env_name: str, space: spaces.Space[Any], wanted: Actions) -> None:
    """Refuse actions that the algorithm cannot take.

    Raises:
        ConfigError: If they are of another kind, or have no bounds where these are needed.
    """
    if wanted == "any" and all(_is_known(part) for _, part in parts_of(space)):
        return
    if wanted == "discrete" and isinstance(space, spaces.Discrete):
        return
    if wanted == "continuous" and isinstance(space, spaces.Box):
        check_bounds(algorithm, env_name, space)
        return
    kind = "discrete or continuous" if wanted == "any" else wanted
    raise ConfigError(
        f"{algorithm} is for {kind} actions, but those of {env_name} are {space}: "
        f"{_INSTEAD[wanted]}."
    )


def check_bounds(algorithm: str, env_name: str, space: spaces.Space[Any]) -> None:
    """Refuse continuous actions, or parts of an action, that are not bounded.

    Raises:
        ConfigError: If there are some.
    """
    for _, part in parts_of(space):
        if isinstance(part, spaces.Box) and not part.is_bounded():
            raise ConfigError(
                f"{algorithm} needs bounded actions, but those of {env_name} are {space}. Bound "
                "them with a wrapper of your own."
            )


def check_mask(
    algorithm: str, env_name: str, action_space: spaces.Space[Any], size: int, expected: int
) -> None:
    """Refuse an action mask that does not fit the actions.

    Raises:
        ConfigError: If it has another size than there are actions to choose from.
    """
    if size not in (0, expected):
        raise ConfigError(
            f"{algorithm}: {env_name} gives an action_mask of {size}, but its actions are "
            f"{action_space}, which need one of {expected}."
        )


def _is_known(space: spaces.Space[Any]) -> bool:
    return isinstance(
        space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
    )


def name_of(env: Any) -> str:
    """What an environment, given by id, specification, factory or factories, is called."""
    if isinstance(env, str):
        return env
    if isinstance(env, Sequence):
        return ", ".join(map(name_of, env))
    return str(getattr(env, "id", None) or getattr(env, "__qualname__", type(env).__name__))
