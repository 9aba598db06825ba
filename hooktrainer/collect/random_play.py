"""An episode with random actions, to see what an environment does."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..base.space_parts import MASK
from ..errors import ConfigError

_STEPS = 500


def random_episode(env: Any, seed: int, steps: int) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Play an episode, or its beginning, with random actions, allowed ones where there is a mask.

    Args:
        env: An environment; or a vector environment of one.
        seed: What it is reset with, and the actions are drawn from.
        steps: After how many it is left.

    Yields:
        ``None`` and what ``reset`` returned; then each action and what ``step`` returned.
    """
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    observation, info = begun(env, seed)
    yield None, (observation, info)
    for _ in range(steps):
        mask = info.get(MASK)
        if mask is None and isinstance(observation, dict):
            mask = observation.get(MASK)
        allowed = None if mask is None else np.asarray(mask, np.int8)
        action = space.sample() if allowed is None else space.sample(allowed)
        outcome = whole_step(env.step(action), env)
        yield action, outcome
        observation, _, terminated, truncated, info = outcome
        if terminated or truncated:
            return


def begun(env: Any, seed: int, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Begin an episode.

    Args:
        env: The environment.
        seed: The episode's.
        options: What ``reset`` is given besides, if anything.

    Returns:
        The observation and the info.

    Raises:
        ConfigError: If ``reset`` has another signature, or returns something else.
    """
    try:
        found = env.reset(seed=seed) if options is None else env.reset(seed=seed, options=options)
    except TypeError as error:
        if not re.search(
            r"reset\(\) got an unexpected keyword argument '(seed|options)'", str(error)
        ):
            raise
        raise ConfigError(
            f"{env}: {error}. Define reset(self, *, seed=None, options=None), as gymnasium.Env has."
        ) from error
    if not isinstance(found, tuple) or len(found) != 2:
        raise ConfigError(
            f"reset() of {env} returned {_returned(found)}; let it return (observation, info)."
        )
    return found


def whole_step(outcome: Any, env: Any) -> tuple[Any, ...]:
    """What ``step`` returned.

    Raises:
        ConfigError: If it is something else than five values.
    """
    if not isinstance(outcome, tuple) or len(outcome) != 5:
        old = ", as the old Gym did" if isinstance(outcome, tuple) and len(outcome) == 4 else ""
        raise ConfigError(
            f"step() of {env} returned {_returned(outcome)}{old}; let it return (observation, "
            "reward, terminated, truncated, info)."
        )
    return outcome


def _returned(value: Any) -> str:
    several = isinstance(value, (tuple, list))
    return f"{len(value)} values" if several else f"a {type(value).__name__}"


def infos_of(env: Any, seed: int) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """What an environment says in an episode, and whether it ended with it."""
    for action, outcome in random_episode(env, seed, _STEPS):
        yield outcome[-1], action is not None and bool(outcome[2] or outcome[3])
    env.reset(seed=seed)  # an episode may go on in the one before; what follows is to begin anew
