"""What ``make_env`` may be, and what it builds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym

from ..collect.make_group import find_spec


@dataclass(frozen=True)
class LookedAt:
    """What is known of the environments that ``make_env`` builds.

    Attributes:
        is_gymnasium: Whether they are Gymnasium's, not TorchRL's.
        is_built: Whether ``make_env`` is an environment itself.
        counts_steps: Whether a transform counts their steps, and may limit them.
        max_steps: Steps after which Gymnasium truncates an episode; ``None`` for no limit.
    """

    is_gymnasium: bool
    is_built: bool = False
    counts_steps: bool = False
    max_steps: int | None = None


def look_at(make_env: Any, env_kwargs: Mapping[str, Any] | None) -> LookedAt:
    """What ``make_env`` builds; unless it is an id, one is built to see, and closed."""
    if isinstance(make_env, str):
        spec = find_spec(make_env)
        own = (env_kwargs or {}).get(_LIMIT, spec.max_episode_steps)
        return LookedAt(True, max_steps=None if own == -1 else own)  # -1 switches it off
    is_built = _is_built(make_env)
    env = build(make_env, env_kwargs)
    try:
        if isinstance(env, gym.Env):
            return LookedAt(True, max_steps=env.spec.max_episode_steps if env.spec else None)
        counts_steps = "step_count" in env.observation_spec.keys(True, True)
        return LookedAt(False, is_built, counts_steps)
    finally:
        if not is_built:
            env.close()


def build(make_env: Any, env_kwargs: Mapping[str, Any] | None) -> Any:
    """Call ``make_env``, unless it is a TorchRL environment itself."""
    return make_env if _is_built(make_env) else make_env(**(env_kwargs or {}))


def limited(
    make_env: str | Callable[..., gym.Env[Any, Any]],
    env_kwargs: Mapping[str, Any] | None,
    looked_at: LookedAt,
    limit: int,
) -> Any:
    """What builds the same Gymnasium environments, their episodes limited to ``limit`` steps.

    A limit of 0 or less is none; a lower one of the environment itself stays.
    """
    own = looked_at.max_steps
    needs_limit = limit > 0 and (own is None or own > limit)
    if not isinstance(make_env, str):
        return partial(_build_limited, make_env, env_kwargs, limit if needs_limit else None)
    spec = copy.deepcopy(find_spec(make_env))
    spec.kwargs |= {k: v for k, v in (env_kwargs or {}).items() if k != _LIMIT}
    spec.max_episode_steps = limit if needs_limit else own
    return spec


_LIMIT = "max_episode_steps"


def _build_limited(
    make_env: Callable[..., gym.Env[Any, Any]],
    env_kwargs: Mapping[str, Any] | None,
    limit: int | None,
) -> gym.Env[Any, Any]:
    env = make_env(**(env_kwargs or {}))
    return env if limit is None else gym.wrappers.TimeLimit(env, limit)


def _is_built(make_env: Any) -> bool:
    from torchrl.envs import EnvBase

    return isinstance(make_env, EnvBase)  # which can be called, as every module can
