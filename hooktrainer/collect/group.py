"""A group of environments that step together: what a collector needs of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from ..base.words import listed, ranges
from ..errors import ConfigError, StateMismatchError
from .action_format import ActionFormat
from .buffers import Row, StepBuffers
from .info import InfoKeys
from .spaces import Array, ObservationLayout

# An environment that finished in this step, and the true final observation, leaf by leaf.
Finished = tuple[int, list[Array]]
EnvFactory = Callable[[], "gym.Env[Any, Any]"]


class Restore(NamedTuple):
    """How a running episode is restored, and the reason.

    ``"replay"``: it is played again from its seed with its actions. ``"state"``: the environment
    saves and restores its state. ``"none"``: a new episode begins.
    """

    method: Literal["state", "replay", "none"]
    reason: str

    def __str__(self) -> str:
        return f"{self.method} ({self.reason})"


@dataclass(frozen=True)
class GroupOptions:
    """Options of every group; see `hooktrainer.collect.VectorCollector`."""

    seeds: EpisodeSeeds
    frame_skip: int = 1
    restore_episodes: bool = True
    info_keys: InfoKeys = ()
    reset_options: Mapping[str, Any] | None = None


class EnvGroup(ABC):
    """Environments that step together and begin their own next episodes.

    A group seeds each episode with its `EpisodeSeeds`, so that its data do not depend on the other
    environments, and writes only to the rows it is given.

    Attributes:
        names: A name for each environment, for messages; ``name`` is the first.
        restores: For each, how `restore` brings its running episode back.
        lost: Which running episodes cannot be restored, and why; ``None`` for none.
        shares: Whether episodes are counted; always.
        episodes: For each environment the index of its running episode; -1 before the first.
        stages: The parts that can be stepped by turns, if there are several.
        has_gaps: Whether episodes begin in a step that is no transition.
        began: Then, which did so in the last step: bool, ``[num_envs]``.
    """

    shares = True
    stages: Sequence[slice] = ()
    has_gaps = False
    began: Array

    def __init__(
        self,
        names: Sequence[str],
        restores: Sequence[Restore],
        options: GroupOptions,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
    ) -> None:
        self.names = tuple(names)
        self.name = self.names[0]
        if not options.restore_episodes:
            restores = [Restore("none", "restore_episodes=False")] * len(names)
        self.restores = tuple(restores)
        self.seeds = options.seeds
        self.info_keys = options.info_keys
        self._reset_options = None if options.reset_options is None else dict(options.reset_options)
        self.observation_space = observation_space
        self.action_space = action_space
        self.num_envs = len(self.names)
        self.episodes = [-1] * self.num_envs
        lost = [i for i, restore in enumerate(restores) if restore.method == "none"]
        reasons = sorted({f"{names[i]}: {restores[i].reason}" for i in lost})
        self.lost = f"environments {ranges(lost)} ({listed(reasons, most=3)})" if lost else None

    def seed(self, seed: int) -> None:
        """Start over: the next episodes are the first ones of this seed."""
        self.seeds = EpisodeSeeds(seed, self.seeds.first_env)
        self.episodes = [-1] * self.num_envs

    def prepare(
        self, layout: ObservationLayout, action_format: ActionFormat, horizon: int
    ) -> StepBuffers:
        """Set how observations are written and actions are read; called before any step.

        Returns the memory of a rollout, whose rows the group is given from then on.
        """
        self._layout, self._format = layout, action_format
        return StepBuffers(layout.leaves, self.num_envs, horizon, len(self.info_keys))

    @abstractmethod
    def first_mask(self) -> Any:
        """The action mask in the ``info`` of the first environment's first reset; or ``None``."""

    @abstractmethod
    def reset(self, row: Row) -> None:
        """Begin the next episode of every environment; writes ``row.observation``."""

    @abstractmethod
    def step(self, actions: Array, row: Row) -> list[Finished]:
        """Step every environment and begin the next episode of those that finished.

        Takes actions as the policy writes them, ``[num_envs, ...]``, and writes to ``row``, whose
        observation is the one to act on next. Returns the environments that finished, with copies
        of their true final observations.
        """

    def send(self, stage: int, actions: Array, row: Row) -> None:
        """Begin to step the environments of one of the `stages`."""
        raise NotImplementedError

    def receive(self, stage: int) -> list[Finished]:
        """Complete the step of a stage, the one that began first; see `step`."""
        raise NotImplementedError

    def snapshots(self) -> list[Any]:
        """For each environment its state besides actions, as a tree; ``None`` if it has none."""
        return [None] * self.num_envs

    @abstractmethod
    def restore(
        self,
        episodes: Sequence[int],
        snapshots: Sequence[Any],
        actions: Sequence[Array | None],
        row: Row,
    ) -> list[int]:
        """Bring every environment to where another run of the same seed left it.

        Args:
            episodes: Index of each environment's running episode.
            snapshots: What `snapshots` returned.
            actions: Of each environment that is replayed the actions, ``[steps, ...]``.
            row: Its observation is the one saved, to which a replay has to lead.

        Returns:
            The environments whose method is ``none``: they have begun their next episode.
        """

    @abstractmethod
    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute that every environment has."""

    @abstractmethod
    def close(self) -> None:
        """Release the environments. Safe to call again."""


def begun(env: Any, seed: int, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Begin an episode."""
    found = env.reset(seed=seed) if options is None else env.reset(seed=seed, options=options)
    if not isinstance(found, tuple) or len(found) != 2:
        raise ConfigError(
            f"reset() of {env} returned a {type(found).__name__}; let it return (observation, "
            "info)."
        )
    return found


def check_alike(envs: Sequence[Any]) -> None:
    """Refuse environments whose spaces differ."""
    for i, env in enumerate(envs):
        for name in ("observation_space", "action_space"):
            own, first = getattr(env, name), getattr(envs[0], name)
            if own != first:
                raise ConfigError(
                    f"Environment {i} has the {name} {own}, environment 0 has {first}. All have to "
                    "be the same."
                )


def check_replayed(found: Iterable[Any], saved: Iterable[Array], which: str) -> None:
    """Refuse observations of an episode that was played again which are not those saved."""
    for value, array in zip(found, saved, strict=False):
        got = np.asarray(value).astype(array.dtype)
        if not np.array_equal(got, array, equal_nan=True):
            raise StateMismatchError(
                f"{which}, played again from its seed, does not lead to the saved observation. Is "
                "it built with the same arguments, and does nothing outlast its episodes? "
                "restore_episodes=False of VectorCollector begins new episodes."
            )


def no_attribute(env: str, name: str) -> ConfigError:
    """The error of an attribute that is to be set and is not there."""
    return ConfigError(
        f"{env} has no attribute {name!r} to be set: name one that it has from the beginning."
    )


_BLOCK = 64  # seeds made at once: a SeedSequence costs as much as a short episode's reset
_RANDOM_ACTIONS = 2**32 - 1  # takes the place of an environment's index


class EpisodeSeeds:
    """Gives every episode a seed, below 2³¹, from the run's seed and both indices alone."""

    def __init__(self, seed: int, first_env: int = 0) -> None:
        self.seed = int(seed)
        self.first_env = first_env
        self._blocks: dict[int, tuple[int, list[int]]] = {}

    def __call__(self, env: int, episode: int) -> int:
        """The seed of an episode."""
        number, place = divmod(episode, _BLOCK)
        block = self._blocks.get(env)
        if block is None or block[0] != number:
            entropy = [self.seed, self.first_env + env, number]
            words = np.random.SeedSequence(entropy).generate_state(_BLOCK, np.uint32)
            block = self._blocks[env] = (number, (words >> 1).tolist())
        return block[1][place]


def random_action_seed(seed: int, first_env: int = 0) -> int:
    """The seed of the generator that draws random actions, apart from every episode's seed."""
    entropy = [seed, _RANDOM_ACTIONS, *([first_env] if first_env else [])]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])


def autoreset_mode_of(env: Any) -> Any:
    """``metadata["autoreset_mode"]`` of an environment; ``None`` if it has none.

    Classes without ``metadata`` of their own share one dict, that of `gymnasium.vector.VectorEnv`.
    Some environments write their mode into it (ALE's do), over that of those made before. They have
    it as an attribute too.
    """
    metadata = getattr(env, "metadata", None) or {}
    if metadata is VectorEnv.metadata:
        return getattr(getattr(env, "unwrapped", env), "autoreset_mode", None)
    return metadata.get("autoreset_mode")
