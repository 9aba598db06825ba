"""Playing a saved policy: episodes that can be repeated exactly, and what it is worth."""

from __future__ import annotations

import dataclasses
import os
import reprlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import CheckpointError, ConfigError
from .interface import MASK
from .loaded import LoadedPolicy
from .saved import EPISODES, SEED, Evaluation, SavedPolicy, check_not_negative, find_policy

if TYPE_CHECKING:
    import gymnasium as gym


@dataclasses.dataclass(frozen=True)
class Episode:
    """One episode that was played.

    Attributes:
        return_: Sum of its rewards; of several agents the mean over all of them.
        length: Number of its actions.
    """

    return_: float
    length: int


@dataclasses.dataclass(frozen=True)
class Step:
    """A moment of an episode: what whoever looks on is shown.

    There is one before every action, and one more at the end.

    Attributes:
        env: The environment as it is at this moment, to be rendered.
        episode: Number of the episode, from 0.
        index: How many actions were taken before in this episode.
        observation: What the policy sees.
        action: What it is about to do; ``None`` at the end.
        return_: Sum of the rewards so far.
    """

    env: Any
    episode: int
    index: int
    observation: Any
    action: Any
    return_: float


class Plays(Protocol):
    """What can be played: a `LoadedPolicy`, or anything like it."""

    saved: SavedPolicy

    def __call__(self, observation: Any, action_mask: Any = None) -> Any:
        """Return the action."""

    def reset(self) -> None:
        """Forget what was seen."""

    def seed(self, seed: int | None) -> None:
        """Seed what it draws; asked for only if it says that it is not ``deterministic``."""

    def make_env(self, **kwargs: Any) -> Any:
        """Make an environment."""


def episode_seed(seed: int, episode: int) -> int:
    """The seed of an episode, which depends on these two numbers alone; below 2³¹.

    Args:
        seed: The seed of all episodes, not negative.
        episode: Number of the episode, from 0.

    Raises:
        ConfigError: If the seed is negative.
    """
    check_not_negative("seed", seed)
    words = np.random.SeedSequence([seed, episode]).generate_state(1, np.uint32)
    return int(words[0] >> 1)


def play_episodes(
    policy: Plays,
    seed: int = SEED,
    episodes: int = EPISODES,
    on_step: Callable[[Step], None] | None = None,
    *,
    env: Any = None,
    **env_kwargs: Any,
) -> list[Episode]:
    """Play whole episodes, one after the other, in one environment.

    The same policy, seed and number give the same episodes; fewer episodes are the first of these.

    Args:
        policy: A `LoadedPolicy`.
        seed: The episodes are seeded from it; see `episode_seed`.
        episodes: How many.
        on_step: Is shown every moment; see `Step`.
        env: The environment to play in, which stays open; by default one is made. For several
            agents a parallel environment of PettingZoo.
        **env_kwargs: Keyword arguments for the environment that is made, such as
            ``render_mode="rgb_array"``.

    Raises:
        ConfigError: If the environment cannot be made, or does not fit the policy, or the seed is
            negative.
    """
    check_not_negative("seed", seed)
    made = policy.make_env(**env_kwargs) if env is None else env
    try:
        return [_play(policy, made, seed, episode, on_step) for episode in range(episodes)]
    finally:
        if env is None:
            made.close()


def _play(
    policy: Plays, env: Any, seed: int, episode: int, on_step: Callable[[Step], None] | None
) -> Episode:
    policy.reset()
    if not getattr(policy, "deterministic", True):
        policy.seed(episode_seed(seed, episode))
    stepper = stepper_of(env, policy.saved.frame_skip, policy.saved.environment.name)
    stepper.reset(episode_seed(seed, episode))
    total, length, ended = 0.0, 0, False
    while not ended:
        whole = {"state": env.state()} if getattr(policy, "reads_state", False) else {}
        action = policy(stepper.observation, stepper.mask, **whole)
        stepper.check(action)
        if on_step is not None:
            on_step(Step(env, episode, length, stepper.observation, action, total))
        reward, ended = stepper.step(action)
        total += reward
        length += 1
    if on_step is not None:
        on_step(Step(env, episode, length, stepper.observation, None, total))
    return Episode(total, length)


def evaluate_policy(
    saved: SavedPolicy | str | os.PathLike[str],
    *,
    seed: int = SEED,
    episodes: int = EPISODES,
    env: Any = None,
    trust: bool = False,
) -> SavedPolicy:
    """Play a saved policy, and record the result in its ``policy.json``.

    Args:
        saved: The policy, or what `find_policy` understands.
        seed: See `play_episodes`.
        episodes: Likewise.
        env: Likewise.
        trust: As for `load_policy`.

    Returns:
        The policy with its evaluation.

    Raises:
        CheckpointError: If the policy cannot be loaded, or was deleted meanwhile.
        ConfigError: If its environment cannot be made, or needs trust.
    """
    if not isinstance(saved, SavedPolicy):
        saved = find_policy(saved)
    policy = LoadedPolicy(saved, trust=trust)
    started = time.perf_counter()
    played = play_episodes(policy, seed, episodes, env=env)
    evaluation = Evaluation(
        seed,
        tuple(episode.return_ for episode in played),
        tuple(episode.length for episode in played),
        round(time.perf_counter() - started, 3),
    )
    from .recorder import change_facts

    try:
        change_facts(saved.path, evaluation=evaluation.encode())
    except FileNotFoundError:
        raise CheckpointError(f"{saved.path} was deleted while it was played.") from None
    return dataclasses.replace(saved, evaluation=evaluation)


# -- What a policy plays in: an environment of one agent or of several, stepped in one manner.


class GymStepper:
    """An environment of Gymnasium.

    Args:
        env: The environment.
        frame_skip: How often each action is repeated.
    """

    def __init__(self, env: gym.Env[Any, Any], frame_skip: int) -> None:
        self._env = env
        self._frame_skip = frame_skip
        self.observation: Any = None
        self.mask: Any = None

    def reset(self, seed: int) -> None:
        """Begin the episode of this seed."""
        self.observation, info = self._env.reset(seed=seed)
        self.mask = info.get(MASK)

    def step(self, action: Any) -> tuple[float, bool]:
        """Take an action as often as it is repeated, or until the episode ends."""
        total = 0.0
        for _ in range(self._frame_skip):
            step = self._env.step(_own(action))
            self.observation, reward, terminated, truncated, info = step
            total += float(reward)
            if terminated or truncated:
                break
        self.mask = info.get(MASK)
        return total, bool(terminated or truncated)

    def check(self, action: Any) -> None:
        """Refuse what no environment with these actions takes."""
        _check(action, self._env.action_space)


class ParallelStepper:
    """A parallel environment of PettingZoo. The reward is the mean over all its agents.

    Args:
        env: The environment.
        name: What it is called in messages.
    """

    def __init__(self, env: Any, name: str) -> None:
        self._env = env
        self._name = name
        self.observation: Any = None
        self.mask: Any = None

    def reset(self, seed: int) -> None:
        """Begin the episode of this seed."""
        self._look(*self._env.reset(seed=seed))
        if not self._env.agents:
            raise ConfigError(f"{self._name} has no agents after reset().")

    def step(self, action: Any) -> tuple[float, bool]:
        """Take the actions of all agents that are there; one that has left counts 0."""
        from ..collect.agents.parallel_world import reward_of

        acted = list(self._env.agents)
        chosen = {agent: _own(action[agent]) for agent in acted}
        seen, rewards, _, _, infos = self._env.step(chosen)
        self._look(seen, infos)
        total = sum(reward_of(rewards, agent, self._name) for agent in acted)
        return total / len(self._env.possible_agents), not self._env.agents

    def check(self, action: Any) -> None:
        """Refuse what no environment with these actions takes."""
        for agent in self._env.agents:
            if agent not in action:
                raise ConfigError(
                    f"the policies have no action for {agent!r:.80}: they are not those that were "
                    "trained in this environment."
                )
            _check(action[agent], self._env.action_space(agent))

    def _look(self, seen: Any, infos: Any) -> None:
        there = list(self._env.agents)
        self.observation = {agent: seen[agent] for agent in there}
        self.mask = {
            agent: infos[agent][MASK] for agent in there if MASK in (infos.get(agent) or {})
        }


def stepper_of(env: Any, frame_skip: int, name: str) -> GymStepper | ParallelStepper:
    """Take an environment of Gymnasium, or a parallel one of PettingZoo."""
    if hasattr(env, "possible_agents"):
        return ParallelStepper(env, name)
    return GymStepper(env, frame_skip)


def _check(action: Any, space: gym.Space[Any]) -> None:
    """Refuse what no environment with these actions takes; bounds of numbers are its own affair.

    Raises:
        ConfigError: If it is so.
    """
    if not _fits(action, space):
        shown = action.tolist() if hasattr(action, "tolist") else action
        raise ConfigError(
            f"the policy's action {reprlib.repr(shown)} is none of the environment's "
            f"({space}): it is not the one that the policy was trained in."
        )


def _fits(action: Any, space: gym.Space[Any]) -> bool:
    from gymnasium.spaces import Box, Dict, Tuple

    if isinstance(space, Box):
        return getattr(action, "shape", None) == space.shape
    if isinstance(space, Dict):
        keys = space.spaces.keys()
        return (
            isinstance(action, dict)
            and action.keys() == keys
            and all(_fits(action[key], space[key]) for key in keys)
        )
    if isinstance(space, Tuple):
        return (
            isinstance(action, tuple)
            and len(action) == len(space)
            and all(map(_fits, action, space.spaces))
        )
    return bool(space.contains(action))


def _own(action: Any) -> Any:
    """An action that the environment may keep: Python integers, and arrays of its own."""
    if isinstance(action, dict):
        return {key: _own(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return tuple(_own(part) for part in action)
    return action.item() if action.ndim == 0 else action.copy()
