"""How an environment's running episode comes back after a resume, and playing one by hand."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd

from ..base.space_parts import MASK
from ..errors import ConfigError, StateMismatchError


class Restore(NamedTuple):
    """How a running episode comes back.

    Attributes:
        method: ``"replay"``: the episode is played again from its seed with its actions.
            ``"state"``: the environment says the state of its episode, and takes it. ``"none"``:
            neither works; the environment begins a new episode, and the run is not the one that
            was interrupted.
        reason: Why, in words.
    """

    method: Literal["state", "replay", "none"]
    reason: str

    def __str__(self) -> str:
        return f"{self.method} ({self.reason})"


NOT_ASKED = Restore("none", "restore_episodes=False")


def choose_restore(env: gym.Env[Any, Any]) -> Restore:
    """How the episodes of ``env`` are restored."""
    if env.spec is not None and env.spec.nondeterministic:
        return Restore("none", "registered as nondeterministic")
    last = _layers(env)[-1]
    if _says_its_state(last):
        return Restore("state", f"{type(last).__name__} says the state of its episodes")
    return Restore("replay", "its episodes follow from their seeds and actions")


# A Gymnasium environment is a chain of wrappers around a base. A layer may give the state of itself
# and of all within it by ``episode_state()``, as plain data, and take it by
# ``set_episode_state(state)``; the numbers of the wrappers around it are then the rest. A replay
# restores all but running moments, which outlast episodes, and what wrappers made with them.
def snapshot(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """What has to be saved beside the actions of an episode, as a state tree."""
    *wrappers, last = _layers(env)
    says = _says_its_state(last)
    if not says and not any(map(_has_moments, wrappers)):
        return None
    numbers = [_numbers(layer) for layer in wrappers]
    return {"state": copy.deepcopy(last.episode_state()) if says else None, "wrappers": numbers}


def put_back(env: gym.Env[Any, Any], saved: Mapping[str, Any]) -> None:
    """Give ``env`` what `snapshot` took of one that was built the same way."""
    *wrappers, last = _layers(env)
    if len(saved["wrappers"]) != len(wrappers):
        raise StateMismatchError(
            f"the saved environment has {len(saved['wrappers'])} wrappers, {env} has "
            f"{len(wrappers)}: build it with the same."
        )
    if _says_its_state(last):
        last.set_episode_state(saved["state"])
    for layer, numbers in zip(wrappers, saved["wrappers"], strict=True):
        for name in numbers.keys() & _numbers(layer).keys():
            value = getattr(layer, name)
            if isinstance(value, RunningMeanStd):
                value.mean, value.var, value.count = numbers[name]
            else:
                setattr(layer, name, copy.deepcopy(numbers[name]))


def _numbers(layer: Any) -> dict[str, Any]:
    """The numbers, arrays and running moments among the attributes of a wrapper."""
    found: dict[str, Any] = {}
    for name, value in vars(layer).items():
        if isinstance(value, RunningMeanStd):
            found[name] = [np.array(value.mean), np.array(value.var), value.count]
        elif isinstance(value, (bool, int, float, np.generic, np.ndarray, deque)):
            found[name] = copy.deepcopy(value)
    return found


def _has_moments(layer: Any) -> bool:
    return any(isinstance(value, RunningMeanStd) for value in vars(layer).values())


def _says_its_state(layer: Any) -> bool:
    return hasattr(type(layer), "episode_state")


def _layers(env: gym.Env[Any, Any]) -> list[Any]:
    """The wrappers and the base, from without; what a layer speaks for is not looked into."""
    layers: list[Any] = [env]
    while isinstance(layers[-1], gym.Wrapper) and not _says_its_state(layers[-1]):
        layers.append(layers[-1].env)
    return layers


TRIAL_STEPS = 500
"""Of an episode that is played to see what its infos say."""


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
        outcome = env.step(action)
        yield action, outcome
        observation, _, terminated, truncated, info = outcome
        if terminated or truncated:
            return


def begun(env: Any, seed: int, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Begin an episode."""
    found = env.reset(seed=seed) if options is None else env.reset(seed=seed, options=options)
    if not isinstance(found, tuple) or len(found) != 2:
        raise ConfigError(
            f"reset() of {env} returned a {type(found).__name__}; let it return (observation, "
            "info)."
        )
    return found


def infos_of(env: Any, seed: int) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """What an environment says in an episode, and whether it ended with it."""
    for action, outcome in random_episode(env, seed, TRIAL_STEPS):
        yield outcome[-1], action is not None and bool(outcome[2] or outcome[3])
    env.reset(seed=seed)  # an episode may go on in the one before; what follows is to begin anew
