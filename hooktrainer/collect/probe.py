"""The spaces of an environment, before anything is built around it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from ..base.space_parts import MASK
from ..errors import ConfigError
from .env_errors import check_made, explain_env_errors
from .make_group import Envs, find_spec
from .restore import random_episode
from .spaces import late_mask, plain_mask
from .worlds.world_ids import is_built, is_world, make_tensor_world

Space = spaces.Space[Any]


class EnvSpaces(NamedTuple):
    """What an environment takes and gives.

    Attributes:
        observation: Its observation space.
        action: Its action space.
        mask_size: Size of the action mask that it gives, in its observation or in ``info``; 0 if it
            gives none.
    """

    observation: Space
    action: Space
    mask_size: int


def spaces_of(env: Envs, env_kwargs: Mapping[str, Any] | None = None) -> EnvSpaces:
    """The spaces of one environment.

    Args:
        env: As for `VectorCollector`, or for `WorldCollector`. One environment is built and
            closed, unless it is a vector environment, or a tensor world, already.
        env_kwargs: Keyword arguments of the environment, with an id.

    Raises:
        ConfigError: If there is no such environment; it lists the nearest ids. If an action mask
            comes with the first step and not with the reset.
        MissingPackageError: If a package it needs is not installed; it says what to type.
    """
    if isinstance(env, gym.vector.VectorEnv) and not is_world(env):
        spaces_ = (env.single_observation_space, env.single_action_space)
        return EnvSpaces(*spaces_, _mask_in_observation(spaces_[0]))
    if is_world(env) and not isinstance(env, str):  # an id stands for Gymnasium's own as well
        return _spaces_of_world(env, env_kwargs)
    source: Any = find_spec(env) if isinstance(env, str) else env
    with explain_env_errors(source, env_kwargs):
        if isinstance(source, EnvSpec):
            made = gym.make(source, **(env_kwargs or {}))
        elif isinstance(source, Sequence) and source:
            made = source[0]()
        elif callable(source):
            made = source()
        else:
            check_made(source, f"env={env!r:.80} is")
            raise ConfigError(
                f"env={env!r}: give an environment id, a factory, or a list of factories."
            )
    check_made(made, "env builds")
    try:
        found = (made.observation_space, made.action_space)
        size = _mask_in_observation(found[0])
        if not size:
            size = _mask_in_info(made)
        return EnvSpaces(*found, size)
    finally:
        made.close()


def _spaces_of_world(env: Any, env_kwargs: Mapping[str, Any] | None) -> EnvSpaces:
    built = is_built(env)
    world = make_tensor_world(env, None if built else 1, env_kwargs=env_kwargs)
    found = (world.observation_space, world.action_space)
    if not built:
        world.close()
    return EnvSpaces(*found, _mask_in_observation(found[0]))


def _mask_in_observation(space: Space) -> int:
    found = space.spaces.get(MASK) if isinstance(space, spaces.Dict) else None
    return 0 if found is None else math.prod(found.shape or ())


def _mask_in_info(env: gym.Env[Any, Any]) -> int:
    """Size of the mask that ``reset`` gives in its info, of which ``step`` may not give more."""
    for action, outcome in random_episode(env, seed=0, steps=1):
        mask = outcome[-1].get(MASK)
        if action is None and mask is not None:
            return int(plain_mask(mask).size)
        if mask is not None:
            raise ConfigError(late_mask())
    return 0
