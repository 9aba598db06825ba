"""Checks of what an algorithm is called with: one clear error each, before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
from gymnasium import spaces

from ..base.space_parts import MASK, leaves_of, parts_of
from ..collect.env_errors import is_envpool
from ..collect.worlds.world_ids import is_built, is_world, world_name
from ..errors import ConfigError

Actions = Literal["continuous", "discrete", "any"]
Observations = Literal["vector", "any"]

_POLICY_GRADIENT = "ppo, a2c and reinforce"


def check_env(algorithm: str, env: Any, eval_episodes: int) -> None:
    """Refuse what cannot be built twice: the policy is evaluated in environments of its own."""
    if is_built(env) and eval_episodes:
        raise ConfigError(
            f"{algorithm}: env={name_of(env)} is built already, and the policy is evaluated in "
            "environments of its own: give the function that builds it, or eval_episodes=0."
        )
    several = isinstance(env, gym.vector.VectorEnv) or is_envpool(env)
    if several and not is_built(env):
        raise ConfigError(
            f"{algorithm}: env={env} is several environments, built already: give an id, or a "
            "function that builds one of them, and num_envs. To collect from these, add "
            "collector=lambda env, num_envs, **options: VectorCollector(<these>, **options)."
        )
    if isinstance(env, gym.Env) and not is_built(env):
        raise ConfigError(
            f"{algorithm}: env={env} is built already; give its id, or a function that builds "
            "one, since the policy is evaluated in environments of its own."
        )


def check_observations(
    algorithm: str, env_name: str, space: spaces.Space[Any], wanted: Observations
) -> None:
    """Refuse observations that the algorithm has no networks for."""
    try:
        leaves = leaves_of(space)
    except ConfigError as error:
        raise ConfigError(f"{algorithm}: {env_name}: {error}") from None
    if all(leaf.key[-1] == MASK for leaf in leaves):
        raise ConfigError(
            f"{algorithm}: the observations of {env_name} are {_said(space)}, in which there is "
            "nothing to see: give it at least one entry, if only a Box of one number."
        )
    if wanted == "vector" and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
        raise ConfigError(
            f"{algorithm} makes networks of one vector, but the observations of {env_name} are "
            f"{_said(space)}. Flatten them with gymnasium.wrappers.FlattenObservation."
        )


def check_actions(algorithm: str, env_name: str, space: spaces.Space[Any], wanted: Actions) -> None:
    """Refuse actions that the algorithm cannot take."""
    parts = [part for _, part in parts_of(space)]
    if not parts:
        raise ConfigError(
            f"{algorithm}: the actions of {env_name} are {_said(space)}, in which there is "
            "nothing to do: give it at least one entry."
        )
    for part in parts:
        if isinstance(part, spaces.Box) and part.dtype.kind != "f":
            raise ConfigError(
                f"{algorithm}: the actions of {env_name} hold {_said(part)}, a Box of "
                f"{part.dtype}: make it a MultiDiscrete of so many choices, or a Box of "
                "float32 that the environment rounds."
            )
    if wanted == "any" and all(map(_is_known, parts)):
        return
    if wanted == "discrete" and isinstance(space, spaces.Discrete):
        return
    if wanted == "continuous" and isinstance(space, spaces.Box):
        check_bounds(algorithm, env_name, space)
        return
    kind = "discrete or continuous" if wanted == "any" else str(wanted)
    if wanted == "discrete" and not isinstance(space, spaces.Box):
        kind = "Discrete"
    raise ConfigError(
        f"{algorithm} is for {kind} actions, but those of {env_name} are {_said(space)}: "
        f"{_instead(space, parts)}."
    )


def _instead(space: spaces.Space[Any], parts: Sequence[spaces.Space[Any]]) -> str:
    """Which algorithms take such actions; where none does, which spaces would fit."""
    if not all(map(_is_known, parts)):
        return "Discrete, MultiDiscrete, MultiBinary, Box, Dict and Tuple would fit"
    if isinstance(space, spaces.Discrete):
        return f"dqn, {_POLICY_GRADIENT} take discrete actions"
    if isinstance(space, spaces.Box):
        return f"sac, td3, ddpg, {_POLICY_GRADIENT} take continuous ones"
    return f"{_POLICY_GRADIENT} take {type(space).__name__} actions"


def check_distribution(
    algorithm: str, env_name: str, space: spaces.Space[Any], distribution: str
) -> None:
    """Refuse a distribution of continuous actions where it cannot be."""
    if distribution == "gaussian":
        return
    if not any(isinstance(part, spaces.Box) for _, part in parts_of(space)):
        raise ConfigError(
            f"{algorithm}: action_distribution={distribution!r} is for continuous actions, but "
            f"those of {env_name} are {_said(space)}, which have a distribution of their "
            "own: leave it out."
        )
    check_bounds(algorithm, env_name, space)


def check_state_dependent(
    algorithm: str, env_name: str, space: spaces.Space[Any], distribution: str
) -> None:
    """Refuse noise that follows the state where it cannot be."""
    if not isinstance(space, spaces.Box):
        raise ConfigError(
            f"{algorithm}: sde=True is for actions that are one Box, but those of {env_name} are "
            f"{_said(space)}: leave it out."
        )
    if distribution == "beta":
        raise ConfigError(
            f"{algorithm}: sde=True with action_distribution='beta': noise that follows the state "
            "is normal: take 'gaussian' or 'squashed', or leave sde out."
        )


def check_bounds(algorithm: str, env_name: str, space: spaces.Space[Any]) -> None:
    """Refuse continuous actions, or parts of an action, that are not bounded."""
    for _, part in parts_of(space):
        if isinstance(part, spaces.Box) and not part.is_bounded():
            raise ConfigError(
                f"{algorithm} needs bounded actions, but those of {env_name} are {_said(space)}. "
                "Bound them with a wrapper of your own."
            )


def check_mask(
    algorithm: str, env_name: str, action_space: spaces.Space[Any], size: int, expected: int
) -> None:
    """Refuse an action mask that does not fit the actions."""
    if size not in (0, expected):
        needed = f"need one of {expected}" if expected else "need none: leave the mask out"
        raise ConfigError(
            f"{algorithm}: {env_name} gives an action_mask of {size}, but its actions are "
            f"{_said(action_space)}, which {needed}."
        )


def _is_known(space: spaces.Space[Any]) -> bool:
    return isinstance(
        space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
    )


def _said(space: spaces.Space[Any]) -> str:
    return " ".join(str(space).split())  # arrays of bounds have several lines


def name_of(env: Any) -> str:
    """What an environment, given by id, specification, factory or factories, is called."""
    if isinstance(env, str):
        return env
    if is_world(env):
        return world_name(env)
    if isinstance(env, Sequence):
        return ", ".join(map(name_of, env))
    return str(getattr(env, "id", None) or getattr(env, "__qualname__", type(env).__name__))
