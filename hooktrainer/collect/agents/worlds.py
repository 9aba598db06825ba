"""`make_world`: makes multi-agent environments from an id, a scenario or a factory."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from ...errors import ConfigError
from ..collector import TIMEOUT
from ..info import InfoKeys
from .parallel_world import ParallelWorld, pettingzoo_factory
from .vmas import VmasWorld
from .world import AgentsWorld, Grouping

VMAS = "vmas/"
PETTINGZOO = "pettingzoo/"


def make_world(
    env: Any,
    num_envs: int,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    groups: Grouping | None = None,
    info_keys: InfoKeys = (),
    device: torch.device | str = "cpu",
    first_env: int = 0,
    workers: int = 0,
    timeout: float = TIMEOUT,
) -> AgentsWorld:
    """Make multi-agent environments.

    Args:
        env: ``"vmas/<scenario>"``, or a scenario class of VMAS; ``"pettingzoo/<family>/<name>"``,
            or a function without arguments that makes a PettingZoo parallel environment.
        num_envs: Number of environments.
        env_kwargs: Arguments of the environment.
        groups: Names of the agents by group; by default agents with equal spaces form a group.
        info_keys: Keys of the agents' ``info`` that steps return.
        device: Device of the tensors.
        first_env: Index of the first environment in the run.
        workers: Number of processes that step PettingZoo environments; 0 for this process.
        timeout: Seconds to wait for one.

    Raises:
        ConfigError: If there is no such environment.
        MissingPackageError: If a package it needs is not installed.
    """
    if is_scenario(env) or (isinstance(env, str) and env.startswith(VMAS)):
        scenario = env.removeprefix(VMAS) if isinstance(env, str) else env
        return VmasWorld(scenario, num_envs, device, groups, env_kwargs, info_keys)
    kwargs = env_kwargs or {}
    if isinstance(env, str) and env.startswith(PETTINGZOO):
        make, name = pettingzoo_factory(env.removeprefix(PETTINGZOO), kwargs), env
    elif callable(env) and not isinstance(env, str):
        made = getattr(env, "func", env)  # of a functools.partial
        make = partial(env, **kwargs)
        name = getattr(made, "__qualname__", type(made).__name__)
    else:
        raise ConfigError(
            f"env={env!r:.80} is no environment of several agents: give 'vmas/balance', "
            "'pettingzoo/mpe/simple_spread_v3', a scenario class of VMAS, or a function that makes "
            "a parallel environment of PettingZoo."
        )
    rest = (first_env, device, info_keys, workers, timeout)
    return ParallelWorld(make, num_envs, name, groups, *rest)


def is_several(env: Any) -> bool:
    """Whether ``env`` names a multi-agent environment."""
    return (isinstance(env, str) and env.startswith((VMAS, PETTINGZOO))) or is_scenario(env)


def is_scenario(env: Any) -> bool:
    """Whether ``env`` is a VMAS scenario class. Does not import VMAS."""
    module = sys.modules.get("vmas.simulator.scenario")
    return module is not None and isinstance(env, type) and issubclass(env, module.BaseScenario)
