"""Checks of what an algorithm is called with: one clear error each, before anything is made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import torch
from gymnasium import spaces

from ..errors import ConfigError
from ..loop.checks import check_count, check_fraction, check_rate, check_seed
from ..words import did_you_mean
from .options import Options

_COUNTS = {"total_frames", "num_envs", "steps_per_batch", "num_epochs", "mini_batch_size"}
_COUNTS |= {"batch_size", "buffer_size", "optim_steps_per_batch", "log_interval"}
_COUNTS |= {"save_interval", "eval_interval", "keep_last", "threads", "target_interval"}
_NOT_NEGATIVE = {"eval_episodes", "init_random_frames"}
_FRACTIONS = {"gamma", "lmbda", "tau", "eps_end"}

Actions = Literal["continuous", "discrete", "any"]

_INSTEAD: Mapping[Actions, str] = {
    "continuous": "dqn, ppo, a2c and reinforce take discrete actions",
    "discrete": "sac, td3, ddpg, ppo, a2c and reinforce take continuous ones",
    "any": "one discrete action, or a vector of continuous ones, would fit",
}


def check_names(
    algorithm: str, options: Mapping[str, Any], hyperparameters: Mapping[str, Any]
) -> None:
    """Refuse options that do not exist.

    Raises:
        TypeError: If there is one; it lists the nearest.
    """
    known = [*hyperparameters, *Options.__annotations__]
    for name in options:
        if name not in Options.__annotations__:
            raise TypeError(
                f"{algorithm}() has no option {name!r}.{did_you_mean(name, known)} It takes: "
                f"{', '.join(known)}."
            )


def check_numbers(algorithm: str, arguments: Mapping[str, Any]) -> None:
    """Refuse numbers that no algorithm can work with, by the argument's own name.

    Raises:
        ConfigError: If there is one.
    """
    for name, value in arguments.items():
        if value is None:
            continue
        if name in _COUNTS:
            check_count(f"{algorithm}: {name}", value)
        elif name in _NOT_NEGATIVE:
            check_count(f"{algorithm}: {name}", value, least=0)
        elif name == "lr":
            check_rate(f"{algorithm}: {name}", value)
        elif name in _FRACTIONS:
            check_fraction(f"{algorithm}: {name}", value)
        elif name == "seed":
            check_seed(value, f"{algorithm}: {name}")
        elif name == "num_cells":
            for cells in value:
                check_count(f"{algorithm}: {name}: the width of a layer", cells)
        elif isinstance(value, float) and math.isnan(value):
            raise ConfigError(f"{algorithm}: {name}={value!r}: pass a number.")


def check_device(algorithm: str, device: Any) -> torch.device:
    """The device of a name.

    Raises:
        ConfigError: If there is none of that name, or not on this machine.
    """
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).split("\n", 1)[0]
        raise ConfigError(f"{algorithm}: device={device!r} is not to be had: {reason}") from None
    return found


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
