"""EnvPool's vector environments, told which sub-environments to reset.

By itself EnvPool begins an episode in the step after the one that ended it, a step that is no
transition. It can also be told to begin one at once, and then that step is one: so its vector
environments are used as any that are in autoreset mode ``DISABLED``.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from ..errors import ConfigError

_METHODS = ("async_reset", "recv", "send", "step", "config")


def is_envpool(env: Any) -> bool:
    """Whether something was built by ``envpool.make``."""
    return not isinstance(env, type) and all(hasattr(env, name) for name in _METHODS)


class EnvPoolEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """A vector environment of EnvPool's, in autoreset mode ``DISABLED``.

    Args:
        pool: What ``envpool.make(..., env_type="gymnasium")`` returned. Its seed was given there.

    Raises:
        ConfigError: If it has another interface, returns before all sub-environments have stepped,
            or has several players.
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
        if int(pool.config.get("max_num_players") or 1) > 1:
            raise ConfigError(f"{name} has several players, and a collector one policy.")
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
