"""Checks of an algorithm's environment, observations and actions, before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
from gymnasium import spaces

from ..base.space_parts import MASK, leaves_of, parts_of
from ..collect.action_format import action_format_of
from ..collect.vector_envs import is_envpool
from ..collect.worlds.world_ids import is_built, is_world, world_name
from ..errors import ConfigError

Actions = Literal["continuous", "discrete", "discrete or continuous", "bounded", "any"]
"""Which actions an algorithm takes; bounded for any whose continuous parts have bounds."""

Observations = Literal["vector", "any"]

_TAKERS = {"discrete": "dqn, dsac, sac, ", "continuous": "sac, td3, ddpg, "}
_TAKERS_OF_DATA = {"discrete": "iql, cql, dt and bc take"}
_KNOWN = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)


def check_env(algorithm: str, env: Any, eval_episodes: int) -> None:
    """Refuse an environment that is built already: evaluation builds further ones."""
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
    try:
        leaves = leaves_of(space)
    except ConfigError as error:
        raise ConfigError(f"{algorithm}: {env_name}: {error}") from None
    problem = None
    if all(leaf.key[-1] == MASK for leaf in leaves):
        problem = "in which there is nothing to see: give it an entry"
    elif wanted == "vector" and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
        problem = "but its networks take one vector: use gymnasium.wrappers.FlattenObservation"
    if problem is not None:
        raise _unfit(algorithm, "observations", env_name, space, problem)


def check_actions(
    algorithm: str,
    env_name: str,
    space: spaces.Space[Any],
    wanted: Actions,
    mask_size: int = 0,
    collects: bool = True,
) -> None:
    """Refuse actions that the algorithm cannot take, or an action mask that does not fit them.

    The error names algorithms that take them: those for data sets if not ``collects``.
    """
    parts = [part for _, part in parts_of(space)]
    whole = [part for part in parts if isinstance(part, spaces.Box) and part.dtype.kind != "f"]
    kind = type(space).__name__
    if isinstance(space, spaces.Discrete | spaces.Box):
        kind = "discrete" if isinstance(space, spaces.Discrete) else "continuous"
    problem = None
    if not parts:
        problem = "in which there is nothing to do: give it an entry"
    elif whole:
        problem = (
            f"with a Box of {whole[0].dtype}: make it a MultiDiscrete of so many choices, or a Box "
            "of float32 that the environment rounds"
        )
    elif not all(isinstance(part, _KNOWN) for part in parts):
        problem = "but Discrete, MultiDiscrete, MultiBinary, Box, Dict and Tuple would fit"
    elif wanted not in ("any", "bounded") and kind not in wanted.split(" or "):
        takers = f"{_TAKERS.get(kind, 'sac, ')}ppo, a2c and reinforce take"
        if not collects:
            takers = _TAKERS_OF_DATA.get(kind, "bc takes")
        problem = f"but {algorithm} is for {wanted} actions: {takers} {kind} actions"
    elif wanted != "any" and not _are_bounded(space):
        problem = _BOUND
    elif mask_size and mask_size != (expected := action_format_of(space).mask_size):
        fit = f"pass one of {expected}" if expected else "leave the mask out"
        problem = f"and its action_mask of {mask_size} does not fit: {fit}"
    if problem is not None:
        raise _unfit(algorithm, "actions", env_name, space, problem)


def check_distribution(
    algorithm: str,
    env_name: str,
    space: spaces.Space[Any],
    distribution: str,
    state_dependent: bool = False,
    log_std: float = 0.0,
) -> None:
    """Refuse a distribution of continuous actions, or its noise, that does not fit."""
    problem = None
    continuous = any(isinstance(part, spaces.Box) for _, part in parts_of(space))
    has_log_std = continuous and (state_dependent or distribution == "gaussian")
    if state_dependent and not isinstance(space, spaces.Box):
        problem = "and sde=True is for actions that are one Box: leave it out"
    elif state_dependent and distribution == "beta":
        problem = (
            "and sde=True with action_distribution='beta' cannot be: set sde=False, or leave "
            "action_distribution out"
        )
    elif log_std and not has_log_std:
        problem = f"and log_std={log_std} is for continuous gaussian actions: leave it out"
    elif distribution == "gaussian":
        return
    elif not continuous:
        problem = (
            f"and action_distribution={distribution!r} is for continuous actions: leave it out"
        )
    elif not _are_bounded(space):
        problem = _BOUND
    if problem is not None:
        raise _unfit(algorithm, "actions", env_name, space, problem)


_BOUND = "but it needs bounded actions, low below high: bound or leave them out with a wrapper"


def _are_bounded(space: spaces.Space[Any]) -> bool:
    boxes = [part for _, part in parts_of(space) if isinstance(part, spaces.Box)]
    return all(box.is_bounded() and (box.low < box.high).all() for box in boxes)


def _unfit(algorithm: str, what: str, env: str, space: spaces.Space[Any], why: str) -> ConfigError:
    text = " ".join(str(space).split())  # arrays of bounds have several lines
    return ConfigError(f"{algorithm}: the {what} of {env} are {text}, {why}.")


def name_of(env: Any) -> str:
    """The name of an environment, given by id, specification, factory or factories."""
    if isinstance(env, str):
        return env
    if is_world(env):
        return world_name(env)
    if isinstance(env, Sequence):
        return ", ".join(map(name_of, env))
    return str(getattr(env, "id", None) or getattr(env, "__qualname__", type(env).__name__))
