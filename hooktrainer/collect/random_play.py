"""An episode with random actions, to see what an environment does."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..base.space_parts import MASK

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
    observation, info = env.reset(seed=seed)
    yield None, (observation, info)
    for _ in range(steps):
        mask = info.get(MASK)
        if mask is None and isinstance(observation, dict):
            mask = observation.get(MASK)
        allowed = None if mask is None else np.asarray(mask, np.int8)
        action = space.sample() if allowed is None else space.sample(allowed)
        outcome = env.step(action)
        yield action, outcome
        observation, _, terminated, truncated, info = outcome
        if terminated or truncated:
            return


def infos_of(env: Any, seed: int) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """What an environment says in an episode, and whether it ended with it."""
    for action, outcome in random_episode(env, seed, _STEPS):
        yield outcome[-1], action is not None and bool(outcome[2] or outcome[3])
    env.reset(seed=seed)  # an episode may go on in the one before; what follows is to begin anew
