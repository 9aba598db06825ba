"""How an environment's running episode is brought back after a resume, found by trying it out."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np

from ..base.space_parts import MASK
from ..errors import ConfigError
from .snapshot import (
    NotPlainError,
    foreign_part,
    layer_that_says,
    layer_with_moments,
    restore,
    snapshot,
)

_STEPS = 12
_MAX_CHARACTERS = 4096  # replaying an episode is better than storing tables of the dynamics


class Restore(NamedTuple):
    """How a running episode comes back.

    Attributes:
        method: ``"state"``: the environment's state is saved and put back. ``"replay"``: the
            episode is played again from its seed with its actions. ``"none"``: neither works; the
            environment begins a new episode, and the run is not the one that was interrupted.
        reason: Why, in words.
    """

    method: Literal["state", "replay", "none"]
    reason: str

    def __str__(self) -> str:
        return f"{self.method} ({self.reason})"


NOT_ASKED = Restore("none", "restore_episodes=False")


def choose_restore(env: gym.Env[Any, Any]) -> Restore:
    """Find out how the episodes of ``env`` can be restored; ``env`` itself is left alone.

    A copy of the environment goes on from a state saved in mid-episode, and plays an episode again
    from its seed, with another one in between. The first that agrees bit for bit is taken. An
    environment with parts in C or C++ is not copied: its episodes are replayed, and held against
    what was saved when that happens.
    """
    if env.spec is not None and env.spec.nondeterministic:
        return Restore("none", "registered as nondeterministic")
    if (layer := layer_that_says(env)) and not foreign_part(env):
        return Restore("state", f"{layer} says the state of its episodes")
    if env.render_mode is not None:
        return _replayed(env, "an environment that renders is not copied to try out more")
    if foreign := foreign_part(env):
        return _replayed(env, foreign)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _try_out(copy.deepcopy(env))
    except Exception as error:
        return _replayed(env, f"cannot be tried out: {type(error).__name__}: {error}")


def _replayed(env: gym.Env[Any, Any], reason: str) -> Restore:
    """Replay without a trial, unless a wrapper is known to gather statistics over episodes."""
    if gathering := layer_with_moments(env):
        return Restore("none", f"{gathering} gathers statistics over episodes, and {reason}")
    return Restore("replay", reason)


def _try_out(env: gym.Env[Any, Any]) -> Restore:
    actions, whole = _explore(env, 1)
    reason = _state_fails(env, actions, max(len(actions) - 1, 0) // 2)
    if not reason:
        return Restore("state", "all of its attributes are plain data")
    _explore(env, 2)
    if _same(_play(env, 1, actions), whole):
        return Restore("replay", reason)
    return Restore("none", "an episode played again from its seed takes another course")


def _state_fails(env: gym.Env[Any, Any], actions: list[Any], middle: int) -> str:
    """Why the attributes of ``env``, taken in mid-episode, do not bring it back; or nothing."""
    _play(env, 1, actions[:middle])
    try:
        state = snapshot(env)
    except NotPlainError as error:
        return str(error)
    if len(state) > _MAX_CHARACTERS:
        return f"its attributes take {len(state)} characters"
    rest = _steps(env, actions[middle:])
    _explore(env, 2)
    restore(env, state)
    return "" if _same(_steps(env, actions[middle:]), rest) else "its attributes are not enough"


def _explore(env: gym.Env[Any, Any], seed: int) -> tuple[list[Any], list[Any]]:
    """The actions of an episode played at random, and what came of them."""
    actions, outcomes = [], []
    for action, outcome in random_episode(env, seed, _STEPS):
        outcomes.append(copy.deepcopy(outcome[0] if action is None else outcome[:4]))
        if action is not None:
            actions.append(action)
    return actions, outcomes


def _play(env: gym.Env[Any, Any], seed: int, actions: list[Any]) -> list[Any]:
    observation, _ = env.reset(seed=seed)
    return [copy.deepcopy(observation), *_steps(env, actions)]


def _steps(env: gym.Env[Any, Any], actions: list[Any]) -> list[Any]:
    return [copy.deepcopy(env.step(action)[:4]) for action in actions]


def _same(a: Any, b: Any) -> bool:
    """Whether two outcomes are equal bit for bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    left, right = np.asarray(a), np.asarray(b)
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.tobytes() == right.tobytes()
    )


_TRIAL_STEPS = 500


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
    for action, outcome in random_episode(env, seed, _TRIAL_STEPS):
        yield outcome[-1], action is not None and bool(outcome[2] or outcome[3])
    env.reset(seed=seed)  # an episode may go on in the one before; what follows is to begin anew
