"""Checks of what an algorithm is called with: one clear error each, before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
from gymnasium import spaces

from ..base.space_parts import MASK, leaves_of, parts_of
from ..collect.vector_group import is_envpool
from ..collect.worlds.world_ids import is_built, is_world, world_name
from ..errors import ConfigError

Actions = Literal["continuous", "discrete", "any"]
Observations = Literal["vector", "any"]

_TAKERS = {"discrete": "dqn, ", "continuous": "sac, td3, ddpg, "}
_KNOWN = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)


def check_env(algorithm: str, env: Any, eval_episodes: int) -> None:
    """Refuse what cannot be built twice: the policy is evaluated in environments of its own."""
    built = is_built(env)
    vector = isinstance(env, gym.vector.VectorEnv) or is_envpool(env)
    if not (eval_episodes if built else vector or isinstance(env, gym.Env)):
        return
    hint = ", or eval_episodes=0" if built else ""
    if vector:
        hint = "; collector=lambda env, num_envs, **options: VectorCollector(<these>, **options)"
        hint += " collects from these"
    raise ConfigError(
        f"{algorithm}: env={name_of(env) if built else env} is built already, and the policy is "
        f"evaluated in environments of its own: give its id, or a function that builds one{hint}."
    )


def check_observations(
    algorithm: str, env_name: str, space: spaces.Space[Any], wanted: Observations
) -> None:
    """Refuse observations that the algorithm has no networks for."""
    subject = f"{algorithm}: the observations of {env_name} are {_said(space)}"
    try:
        leaves = leaves_of(space)
    except ConfigError as error:
        raise ConfigError(f"{algorithm}: {env_name}: {error}") from None
    if all(leaf.key[-1] == MASK for leaf in leaves):
        raise ConfigError(f"{subject}, in which there is nothing to see: give it an entry.")
    if wanted == "vector" and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
        raise ConfigError(
            f"{subject}, but its networks take one vector: use "
            "gymnasium.wrappers.FlattenObservation."
        )


def check_actions(algorithm: str, env_name: str, space: spaces.Space[Any], wanted: Actions) -> None:
    """Refuse actions that the algorithm cannot take."""
    subject = f"{algorithm}: the actions of {env_name} are {_said(space)}"
    parts = [part for _, part in parts_of(space)]
    if not parts:
        raise ConfigError(f"{subject}, in which there is nothing to do: give it an entry.")
    for part in parts:
        if isinstance(part, spaces.Box) and part.dtype.kind != "f":
            raise ConfigError(
                f"{subject}, with a Box of {part.dtype}: make it a MultiDiscrete of so many "
                "choices, or a Box of float32 that the environment rounds."
            )
    known = all(isinstance(part, _KNOWN) for part in parts)
    kind = type(space).__name__
    if isinstance(space, spaces.Discrete | spaces.Box):
        kind = "discrete" if isinstance(space, spaces.Discrete) else "continuous"
    if not known or wanted not in ("any", kind):
        takers = f"{_TAKERS.get(kind, '')}ppo, a2c and reinforce take {kind} actions"
        fit = "Discrete, MultiDiscrete, MultiBinary, Box, Dict and Tuple would fit"
        raise ConfigError(
            f"{algorithm} is for {'discrete or continuous' if wanted == 'any' else wanted} actions,"
            f" but those of {env_name} are {_said(space)}: {takers if known else fit}."
        )
    if wanted == "continuous":
        check_bounds(algorithm, env_name, space)


def check_distribution(
    algorithm: str,
    env_name: str,
    space: spaces.Space[Any],
    distribution: str,
    state_dependent: bool = False,
) -> None:
    """Refuse a distribution of continuous actions, or state-dependent noise, that cannot be."""
    problem = None
    if state_dependent and not isinstance(space, spaces.Box):
        problem = "sde=True is for actions that are one Box"
    elif state_dependent and distribution == "beta":
        problem = "sde=True with action_distribution='beta' instead of 'gaussian' or 'squashed'"
    elif distribution != "gaussian":
        if any(isinstance(part, spaces.Box) for _, part in parts_of(space)):
            check_bounds(algorithm, env_name, space)
        else:
            problem = f"action_distribution={distribution!r} is for continuous actions"
    if problem is not None:
        raise ConfigError(
            f"{algorithm}: {problem}; the actions of {env_name} are {_said(space)}: leave it out."
        )


def check_bounds(algorithm: str, env_name: str, space: spaces.Space[Any]) -> None:
    """Refuse continuous actions, or parts of an action, that are not bounded."""
    if any(isinstance(part, spaces.Box) and not part.is_bounded() for _, part in parts_of(space)):
        raise ConfigError(
            f"{algorithm} needs bounded actions, but those of {env_name} are {_said(space)}: bound "
            "them with a wrapper."
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
