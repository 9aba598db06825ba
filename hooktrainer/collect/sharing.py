"""Environments shared out: to the processes of one collector, and to several collectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from ..base.checks import share_equally
from ..errors import ConfigError
from .group import EnvGroup, GroupOptions
from .make_group import make_group
from .missing import explain_missing
from .overlap.state import collector_state
from .worker_group import WorkerGroup, envs_to_share

Arguments = Mapping[str, Any]
"""What a `VectorCollector` was made with, by name."""


def open_group(arguments: Arguments, options: GroupOptions) -> EnvGroup:
    """Build a collector's environments, in this process or in its workers.

    Raises:
        ConfigError: If they cannot be built.
    """
    env, num_envs, env_kwargs = (arguments[name] for name in ("env", "num_envs", "env_kwargs"))
    mode = arguments["vectorization_mode"]
    with explain_missing():
        if not arguments["workers"]:
            return make_group(env, num_envs, options, env_kwargs, mode)
        processes = {name: arguments[name] for name in ("workers", "stages")}
        return WorkerGroup(env, num_envs, options, **processes, env_kwargs=env_kwargs, mode=mode)


def check_shares(arguments: Arguments) -> None:
    """Refuse more workers and stages than there are environments for.

    Raises:
        ConfigError: If there are, or the environments were made already.
    """
    if workers := arguments["workers"]:
        envs_to_share(arguments["env"], arguments["num_envs"], workers, arguments["stages"])


def share_of(arguments: Arguments, num_envs: int, rank: int, world_size: int) -> dict[str, Any]:
    """The arguments of one of several collectors that together are one.

    Args:
        arguments: Those of the one.
        num_envs: How many environments it has.
        rank: Index of the share.
        world_size: Number of shares.

    Raises:
        ConfigError: If the environments cannot be shared equally, or were made already.
    """
    share = share_equally(num_envs, world_size, "num_envs")
    env, first = arguments["env"], rank * share
    if isinstance(env, gym.vector.VectorEnv):
        raise ConfigError(
            "A vector environment that was made already cannot be shared by several processes: "
            "give VectorCollector an environment id or a factory."
        )
    frames = {
        name: arguments[name] // world_size if arguments[name] > 0 else arguments[name]
        for name in ("frames_per_batch", "total_frames")
    }
    if isinstance(env, (list, tuple)):
        own: dict[str, Any] = {"env": env[first : first + share], "num_envs": None}
    else:
        own = {"num_envs": share}
    return {**arguments, **frames, **own, "first_env": arguments["first_env"] + first}


def shares_of(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The states of the collectors of which one was put together; itself if it was not."""
    if "workers" in state:
        return [share["collector"] for share in state["workers"]]
    return [collector_state(state)]


def resharded(states: Sequence[Mapping[str, Any]], num_envs: int, first_env: int) -> dict[str, Any]:
    """A collector's state made of those of former shares; its episodes are all new ones.

    Args:
        states: Theirs, in order.
        num_envs: How many environments the collector has.
        first_env: Index of its first among all of them.
    """
    states = [share for state in states for share in shares_of(state)]
    episodes = [episode for state in states for episode in state["episodes"]]
    frames = sum(state["frames"] for state in states)
    return {
        "frames": frames * num_envs // len(episodes),
        "seed": states[0]["seed"],
        "episodes": episodes[first_env : first_env + num_envs],
        "rollout": None,
    }
