"""Environments of PettingZoo: found by their ids, and looked at."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from ...errors import ConfigError, MissingPackageError


def pettingzoo_factory(name: str, kwargs: Mapping[str, Any]) -> Callable[[], Any]:
    """What makes the environments called ``<family>/<name>``, such as ``mpe/simple_spread_v3``.

    Raises:
        ConfigError: If there is none, or it is no parallel one.
        MissingPackageError: If a package it needs is not installed.
    """
    family, _, own = name.partition("/")
    if not own:
        raise ConfigError(
            f"env='pettingzoo/{name}': give the family too, such as pettingzoo/mpe/simple_spread_v3"
            "."
        )
    # Families that have become packages of their own.
    home = {"mpe": "mpe2"}.get(family, f"pettingzoo.{family}")
    try:
        with warnings.catch_warnings():  # of another way to find environments
            warnings.simplefilter("ignore")
            importlib.import_module(home)
            # Nothing is looked for by importing it: the name may come from somebody's file.
            if "." in own or importlib.util.find_spec(f"{home}.{own}") is None:
                raise ConfigError(
                    f"there is no environment 'pettingzoo/{name}': {home} has no {own!r}."
                )
            module = importlib.import_module(f"{home}.{own}")
    except ModuleNotFoundError as error:
        missing = str(error.name)
        extra = "hooktrainer[pettingzoo]" if missing.split(".")[0] in ("pettingzoo", "mpe2") else ""
        raise MissingPackageError(
            f"pettingzoo/{name} needs {missing}, which is not installed: pip install "
            f"'{extra or f'pettingzoo[{family}]'}'",
            name=missing,
        ) from error
    if not hasattr(module, "parallel_env"):
        raise ConfigError(
            f"pettingzoo/{name} has no parallel_env: its agents act in turns, which no algorithm "
            "here is for."
        )
    return partial(module.parallel_env, **kwargs)


def checked_env(env: Any, name: str) -> Any:
    """The environment, if it is a parallel one of PettingZoo.

    Raises:
        ConfigError: If it is none.
    """
    if hasattr(env, "agent_iter"):
        raise ConfigError(
            f"env={name}: made a {type(env).__name__}, whose agents act in turns (PettingZoo's "
            "AEC), which no algorithm here is for: give the function parallel_env of its module, "
            "or lambda: pettingzoo.utils.aec_to_parallel(...)."
        )
    needed = ("reset", "step", "observation_space", "action_space", "possible_agents")
    if missing := [one for one in needed if not hasattr(env, one)]:
        raise ConfigError(
            f"env={name}: made a {type(env).__name__}, which has no {', '.join(missing)}: give a "
            "function that makes a parallel environment of PettingZoo (ParallelEnv)."
        )
    if not env.possible_agents:
        raise ConfigError(f"env={name}: possible_agents is empty; name every agent there may be.")
    return env


def reward_of(rewards: Mapping[str, Any], agent: str, where: str) -> float:
    """The reward of an agent that acted.

    Args:
        rewards: What ``step`` returned.
        agent: The agent.
        where: What the environment is called.

    Raises:
        ConfigError: If it got none, or one that is no single number.
    """
    reward = rewards.get(agent)
    if reward is None or (np.ndim(reward) and np.size(reward) != 1):
        raise ConfigError(
            f"step() of {where} gave {agent} the reward {reward!r:.80}: every agent that acts gets "
            "a number, 0.0 if it earns nothing."
        )
    return float(np.asarray(reward).item())


def state_space_of(env: Any) -> spaces.Space[Any] | None:
    """The space of its state, if it has one."""
    try:
        state = np.asarray(env.state())
    except (NotImplementedError, AttributeError):
        return None
    return spaces.Box(-np.inf, np.inf, state.shape, np.float32)
