"""The spaces of an environment, before anything is built around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from ..errors import ConfigError
from .env_errors import explain_env_errors
from .make_group import Envs, find_spec

Space = spaces.Space[Any]


def spaces_of(env: Envs, env_kwargs: Mapping[str, Any] | None = None) -> tuple[Space, Space]:
    """The observation space and the action space of one environment.

    Args:
        env: As for `VectorCollector`. One environment is built and closed, unless it is a vector
            environment already.
        env_kwargs: Keyword arguments of the environment, with an id.

    Raises:
        ConfigError: If there is no such environment; it lists the nearest ids.
        MissingPackageError: If a package it needs is not installed; it says what to type.
    """
    if isinstance(env, gym.vector.VectorEnv):
        return env.single_observation_space, env.single_action_space
    source: Any = find_spec(env) if isinstance(env, str) else env
    with explain_env_errors(source, env_kwargs):
        if isinstance(source, EnvSpec):
            made = gym.make(source, **(env_kwargs or {}))
        elif isinstance(source, Sequence) and source:
            made = source[0]()
        elif callable(source):
            made = source()
        else:
            raise ConfigError(
                f"env={env!r}: give an environment id, a factory, a list of factories or a "
                "VectorEnv."
            )
    try:
        return made.observation_space, made.action_space
    finally:
        made.close()
