"""Environments that cannot be made: what is missing, or which argument is wrong, in a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AutoresetMode

from ..base.env_packages import package_of
from ..errors import ConfigError, MissingPackageError
from ..loop.signals import SignalExit
from .worlds.adapters.kinds import kind_of

_OURS = ("box2d", "mujoco")


@contextmanager
def explain_env_errors(
    source: Any = None, kwargs: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Turn what goes wrong where an environment is made into what its user can do."""
    try:
        yield
    except DependencyNotInstalled as error:
        raise MissingPackageError(
            f"the environment needs a package that is not installed: {_line(source, error)}"
        ) from error
    except ImportError as error:
        if not isinstance(source, EnvSpec):
            raise
        package = package_of(source.id)
        install = f": pip install '{package.install}'" if package else ""
        raise MissingPackageError(
            f"{source.id} cannot be made: {error}{install}", name=error.name
        ) from error
    except TypeError as error:
        refused = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if not isinstance(source, EnvSpec) or not kwargs or refused is None:
            raise
        raise ConfigError(
            f"env_kwargs={dict(kwargs)}: {source.id} has no argument {refused[1]!r}: leave it out."
        ) from error
    except SignalExit:
        raise
    except SystemExit as error:  # which would end this program without a word
        raise ConfigError(f"the environment called sys.exit({error.code!r}) when made.") from error


def check_made(made: Any, who: str) -> None:
    """Refuse what is no environment of Gymnasium, with what takes it instead."""
    if isinstance(made, gym.Env):
        return
    if isinstance(made, gym.vector.VectorEnv) or is_envpool(made):
        what = "which is several: build one and pass num_envs; VectorCollector takes it as env"
    elif hasattr(made, "agent_iter"):
        what = "whose agents act in turns: give PettingZoo's parallel_env to mappo or qmix"
    elif hasattr(made, "possible_agents"):
        what = "which has several agents: AgentsCollector, mappo, ippo, vdn and qmix take it"
    elif kind_of(made) is not None or hasattr(made, "num_envs"):
        what = "which steps tensors: WorldCollector takes it"
    else:
        what = "not a gymnasium.Env: give an environment id, or a function that builds one"
    raise ConfigError(f"{who} a {type(made).__name__}, {what}.")


def _line(source: Any, error: Exception) -> str:
    """What to type, or what the environment says."""
    if isinstance(source, EnvSpec) and (package := package_of(source.id)):
        return f"pip install '{package.install}'"
    extra = re.search(r"gymnasium\[([\w-]+)\]", str(error))
    return f"pip install 'hooktrainer[{extra[1]}]'" if extra and extra[1] in _OURS else str(error)


_METHODS = ("async_reset", "recv", "send", "step", "config")


def is_envpool(env: Any) -> bool:
    """Whether something was built by ``envpool.make``."""
    return not isinstance(env, type) and all(hasattr(env, name) for name in _METHODS)


class EnvPoolEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """A vector environment of EnvPool's, in autoreset mode ``DISABLED``.

    Args:
        pool: What ``envpool.make(..., env_type="gymnasium")`` returned. Its seed was given there.

    Raises:
        ConfigError: If it has another interface, or returns before all sub-environments stepped.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, pool: Any) -> None:
        self.num_envs = int(pool.config["num_envs"])
        batch_size = int(pool.config.get("batch_size") or self.num_envs)
        name = type(pool).__name__
        if not isinstance(pool.observation_space, gym.Space):
            raise ConfigError(f"{name}: build it with envpool.make(..., env_type='gymnasium').")
        if batch_size != self.num_envs:
            raise ConfigError(
                f"{name} has num_envs={self.num_envs} and batch_size={batch_size}: leave out "
                "batch_size, so that all sub-environments take each step."
            )
        self._pool = pool
        self.single_observation_space = pool.observation_space
        self.single_action_space = pool.action_space
        self.observation_space = gym.vector.utils.batch_space(pool.observation_space, self.num_envs)
        self.action_space = gym.vector.utils.batch_space(pool.action_space, self.num_envs)
        self._latest: Any = None

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in all sub-environments, or in those that ``reset_mask`` names."""
        mask = (options or {}).get("reset_mask")
        if mask is None:
            self._latest = self._pool.reset()
        else:
            which = np.flatnonzero(mask).astype(np.int32)
            observation, info = self._pool.reset(which)
            order = np.asarray(info["env_id"])  # in which the sub-environments answered
            self._latest = _placed(self._latest, (observation, info), order)
        observation, info = self._latest
        return observation, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all sub-environments."""
        observation, reward, terminated, truncated, info = self._pool.step(actions)
        self._latest = observation, info
        return observation, reward, terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """Close the pool."""
        self._pool.close()

    def __str__(self) -> str:
        return f"{type(self._pool).__name__}(num_envs={self.num_envs})"


def _placed(all_of_them: Any, some: Any, which: Any) -> Any:
    """Arrays of all sub-environments, with those of some put into their places."""
    if isinstance(some, tuple):
        return tuple(_placed(a, b, which) for a, b in zip(all_of_them, some, strict=True))
    if isinstance(some, dict):
        return {key: _placed(all_of_them.get(key), value, which) for key, value in some.items()}
    if not isinstance(all_of_them, np.ndarray) or not isinstance(some, np.ndarray):
        return some
    placed = all_of_them.copy()
    placed[which] = some
    return placed
