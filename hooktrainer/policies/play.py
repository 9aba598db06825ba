"""Plays and evaluates a saved policy, in episodes that can be repeated exactly."""

from __future__ import annotations

import dataclasses
import os
import reprlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..base.checks import check_count
from ..errors import CheckpointError, ConfigError
from ..store.rng import seed_of
from .interface import MASK
from .loaded import LoadedPolicy
from .policy_files import change_facts
from .saved import EPISODES, SEED, Evaluation, SavedPolicy, find_policy

if TYPE_CHECKING:
    import gymnasium as gym


@dataclasses.dataclass(frozen=True)
class Episode:
    """One episode that was played.

    Attributes:
        return_: Sum of its rewards; for several agents the mean over them.
        length: Number of its actions.
    """

    return_: float
    length: int


@dataclasses.dataclass(frozen=True)
class Step:
    """A moment of an episode: before every action, and at the end, where `action` is ``None``.

    `index` counts the actions taken before, `return_` is the sum of the rewards so far, and `env`
    can be rendered.
    """

    env: Any
    episode: int
    index: int
    observation: Any
    action: Any
    return_: float


def episode_seed(seed: int, episode: int) -> int:
    """The seed of an episode, which depends on these two numbers alone; below 2³¹."""
    check_count("seed", seed, least=0)
    return seed_of((seed, episode)) >> 1


def play_episodes(
    policy: LoadedPolicy,
    seed: int = SEED,
    episodes: int = EPISODES,
    on_step: Callable[[Step], None] | None = None,
    *,
    env: Any = None,
    **env_kwargs: Any,
) -> list[Episode]:
    """Play whole episodes, one after another, in one environment.

    The same policy and seed give the same episodes, however many are played.

    Args:
        policy: A `LoadedPolicy`.
        seed: The seed of all episodes; see `episode_seed`.
        episodes: How many.
        on_step: Called with every `Step`.
        env: The environment, which stays open; by default one is made. For several agents
            one of PettingZoo.
        **env_kwargs: Keyword arguments for the environment that is made, such as
            ``render_mode="rgb_array"``.

    Raises:
        ConfigError: If the environment cannot be made or does not fit, or a number is out of range.
    """
    check_count("seed", seed, least=0)
    check_count("episodes", episodes)
    if isinstance(env, str):
        raise ConfigError(
            f"play_episodes: env={env!r} is an id: pass gymnasium.make({env!r}), or leave env out."
        )
    made = policy.make_env(**env_kwargs) if env is None else env
    if hasattr(made, "agent_iter"):
        from ..collect.agents.parallel_env import checked_env

        made = checked_env(made, policy.saved.environment.name)  # a parallel one
    try:
        return [_play(policy, made, seed, episode, on_step) for episode in range(episodes)]
    finally:
        if env is None:
            made.close()


def _play(
    policy: LoadedPolicy, env: Any, seed: int, episode: int, on_step: Callable[[Step], None] | None
) -> Episode:
    policy.reset()
    if not policy.deterministic:
        policy.seed(episode_seed(seed, episode))
    several = hasattr(env, "possible_agents")
    name = policy.saved.environment.name
    stepper = _Parallel(env, name) if several else _Single(env, policy.saved.frame_skip)
    stepper.reset(episode_seed(seed, episode))
    total, length, ended = 0.0, 0, False
    while not ended:
        whole = {"state": env.state()} if policy.interface.reads_state else {}
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
    """Play a saved policy, record the result in its ``policy.json``, and return it with that.

    Args:
        saved: The policy, or what `find_policy` accepts.
        seed: As for `play_episodes`.
        episodes: As for `play_episodes`.
        env: As for `play_episodes`.
        trust: As for `load_policy`.

    Raises:
        CheckpointError: If the policy cannot be loaded, or was deleted meanwhile.
        ConfigError: If its environment cannot be made, or needs trust.
    """
    if not isinstance(saved, SavedPolicy):
        saved = find_policy(saved)
    if saved.path.is_file():
        raise ConfigError(f"{saved.path} is packed, and cannot record an evaluation: play it.")
    policy = LoadedPolicy(saved, trust=trust)
    started = time.perf_counter()
    played = play_episodes(policy, seed, episodes, env=env)
    evaluation = Evaluation(
        seed,
        tuple(episode.return_ for episode in played),
        tuple(episode.length for episode in played),
        round(time.perf_counter() - started, 3),
    )
    try:
        change_facts(saved.path, evaluation=evaluation.encode())
    except FileNotFoundError:
        raise CheckpointError(f"{saved.path} was deleted while it was played.") from None
    return dataclasses.replace(saved, evaluation=evaluation)


# -- What a policy plays in: an environment of one agent or of several, stepped in one manner.


class _Single:
    """Steps a Gymnasium environment; each action is repeated ``frame_skip`` times."""

    def __init__(self, env: gym.Env[Any, Any], frame_skip: int) -> None:
        from ..collect.last_step import show_sums

        show_sums(env, frame_skip)
        self._env: Any = env
        self._frame_skip = frame_skip
        self.observation: Any = None
        self.mask: Any = None

    def reset(self, seed: int) -> None:
        self.observation, info = self._env.reset(seed=seed)
        self.mask = info.get(MASK)

    def step(self, action: Any) -> tuple[float, bool]:
        """Repeat an action; return the sum of rewards, and whether the episode has ended."""
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
        _check(action, self._env.action_space)


class _Parallel(_Single):
    """Steps a parallel PettingZoo environment; the reward is the mean over all agents."""

    def __init__(self, env: Any, name: str) -> None:
        super().__init__(env, 1)
        self._name = name

    def reset(self, seed: int) -> None:
        self._look(*self._env.reset(seed=seed))
        if not self._env.agents:
            raise ConfigError(f"{self._name} has no agents after reset().")

    def step(self, action: Any) -> tuple[float, bool]:
        """Take the actions of all present agents; the reward of an absent one is 0."""
        from ..collect.agents.parallel_env import acting, reward_of

        acted = list(self._env.agents)
        taken = {name: _own(action[name]) for name in acting(self._env)}
        seen, rewards, _, _, infos = self._env.step(taken)
        self._look(seen, infos)
        total = sum(reward_of(rewards, agent, self._name) for agent in acted)
        return total / len(self._env.possible_agents), not self._env.agents

    def check(self, action: Any) -> None:
        from ..collect.agents.parallel_env import acting

        for agent in acting(self._env):
            if agent not in action:
                raise ConfigError(
                    f"the policies have no action for {agent!r:.80}: they are not those that were "
                    "trained in this environment."
                )
            _check(action[agent], self._env.action_space(agent))

    def _look(self, seen: Any, infos: Any) -> None:
        from ..collect.agents.parallel_env import acting

        there = acting(self._env)
        self.observation = {agent: seen[agent] for agent in there}
        masks = {agent: (infos.get(agent) or {}).get(MASK) for agent in there}
        self.mask = {agent: mask for agent, mask in masks.items() if mask is not None}


def _check(action: Any, space: gym.Space[Any]) -> None:
    """Refuse an action of another space; bounds are left to the environment."""
    from ..base.space_parts import parts_of

    for path, part in parts_of(space):
        own, limits = action, getattr(part, "low", None)
        try:
            for key in path:
                own = own[key]
            fits = part.contains(own) if limits is None else own.shape == part.shape
        except (LookupError, TypeError, AttributeError):
            fits = False
        if not fits:
            shown = own.tolist() if hasattr(own, "tolist") else own
            raise ConfigError(
                f"the policy's action {reprlib.repr(shown)} is none of the environment's "
                f"({space}): it is not the one that the policy was trained in."
            )


def _own(action: Any) -> Any:
    """A copy that the environment may keep; Python integers for discrete actions."""
    if isinstance(action, dict):
        return {key: _own(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return tuple(_own(part) for part in action)
    return action.item() if action.ndim == 0 else action.copy()
