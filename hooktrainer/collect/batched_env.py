"""`BatchedEnv`: the interface of environments that step together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv

from ..base.words import listed, ranges
from ..errors import ConfigError, StateMismatchError
from .action_format import ActionFormat, action_format_of
from .agent_groups import AgentGroup
from .buffers import CPU, Buffers, Kinds, Row
from .info import InfoKeys
from .spaces import Array, ObservationLayout

Finished = tuple[int, list[Array]]
"""An environment that finished in this step, and its true final observation, leaf by leaf."""
Ended = list[Finished] | torch.Tensor
"""The environments that finished; or, on a device that is not waited for, bool ``[num_envs]``."""
EnvFactory = Callable[[], "gym.Env[Any, Any]"]


class Restore(NamedTuple):
    """How a running episode is restored.

    ``"replay"``: it is played again from its seed with its actions. ``"state"``: the environment
    saves and restores its state. ``"none"``: a new episode begins, for this ``reason``.
    """

    method: Literal["state", "replay", "none"]
    reason: str = ""


@dataclass(frozen=True)
class EnvOptions:
    """Options of environments; see `hooktrainer.collect.VectorCollector`.

    ``frame_skip`` is ``None`` if not given.
    """

    seeds: EpisodeSeeds
    frame_skip: int | None = None
    restore_episodes: bool = True
    info_keys: InfoKeys = ()
    reset_options: Mapping[str, Any] | None = None
    categorical: bool = True
    clip: bool = False
    groups: Mapping[str, Sequence[str]] | None = None
    device: torch.device = CPU


class BatchedEnv(ABC):
    """``num_envs`` environments stepped as one, which begin their own next episodes.

    They write to the rows of the `Buffers` that `prepare` makes, and to nothing else.

    Attributes:
        name: Name for messages.
        num_envs: Number of environments.
        frame_skip: Frames of the environment per step.
        is_tensors: Whether observations are tensors on ``device``, which no step waits for; else
            they are arrays.
        device: Where batches are made.
        observation_space: The observation space of one environment.
        action_space: The action space of one environment.
        action_format: The form of the policy's actions.
        groups: Of several agents, these by group.
        entries: Further entries of a batch's ``"next"``.
        shares: Whether an episode depends only on the seed, its environment's index and its own
            index, so that processes can divide the environments.
        episodes: Index of each environment's running episode, -1 before the first; always -1 if
            they are not counted.
        restores: For each environment, how `restore` brings its running episode back; empty where
            `load_state_dict` does.
        lost: Which running episodes cannot be restored, and why; ``None`` for none.
        stages: The environments of each stage, if there are several; see `send`.
        has_gaps: Whether episodes begin in a step that is no transition.
        began: Then, which did so in the last step: bool, ``[num_envs]``.
        sets_rng: Whether a step sets the global random generators to earlier states.
        hides_final: Whether a final observation of the last rollout was unknown.
    """

    name: str
    num_envs: int
    frame_skip: int = 1
    is_tensors: bool = False
    device: torch.device = CPU
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    action_format: ActionFormat
    groups: tuple[AgentGroup, ...] = ()
    entries: Kinds = MappingProxyType({})
    shares: bool = True
    episodes: list[int]
    restores: Sequence[Restore] = ()
    lost: str | None = None
    stages: Sequence[slice] = ()
    has_gaps = False
    began: Array
    sets_rng = False
    hides_final = False

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Start over: the next episodes are the first ones of this seed."""

    @abstractmethod
    def prepare(self, horizon: int) -> Buffers:
        """Make the buffers of a rollout, to which the environments write from then on."""

    @abstractmethod
    def reset(self) -> None:
        """Begin the next episode of every environment; writes the last row's observation."""

    @abstractmethod
    def step(self, actions: Any, t: int) -> Ended:
        """Make step ``t`` of a rollout, and begin the next episode of those that finished.

        Takes actions as the policy writes them, ``[num_envs, ...]``, and writes row ``t``, whose
        observation is the one to act on next.
        """

    def send(self, stage: int, actions: Any, t: int) -> None:
        """Begin to step the environments of one of the `stages`."""
        raise NotImplementedError

    def receive(self, stage: int) -> Ended:
        """Complete the step of a stage, the one that began first; see `step`."""
        raise NotImplementedError

    def take_log(self) -> dict[str, torch.Tensor]:
        """The simulator's numbers by name, means over the steps since the last call."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The state that outlasts episodes, and that of episodes not in `snapshots`."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> bool:
        """Restore what `state_dict` returned; returns whether running episodes continue."""
        return True

    def snapshots(self) -> list[Any]:
        """For each environment its state besides actions, as a tree; ``None`` if it has none."""
        return [None] * self.num_envs

    def restore(
        self, episodes: Sequence[int], snapshots: Sequence[Any], actions: Sequence[Any]
    ) -> list[int]:
        """Bring every environment to where another run of the same seed left it.

        The last row's observation is the one saved, to which a replay has to lead.

        Args:
            episodes: Index of each environment's running episode.
            snapshots: What `snapshots` returned.
            actions: Of each environment that is replayed the actions, ``[steps, ...]``, or a dict
                of these; else ``None``.

        Returns:
            The environments whose method is ``none``: they have begun their next episode.
        """
        return []

    @abstractmethod
    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute that every environment has."""

    @abstractmethod
    def close(self) -> None:
        """Release the environments. Safe to call again."""


class ArrayEnv(BatchedEnv):
    """Environments whose observations are arrays, and whose episodes are seeded by `EpisodeSeeds`.

    So their data do not depend on which environments step together.
    """

    _layout: ObservationLayout
    _rows: Sequence[Row]

    def __init__(
        self,
        names: Sequence[str],
        restores: Sequence[Restore],
        options: EnvOptions,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
    ) -> None:
        self.names = tuple(names)
        self.name = self.names[0]
        if not options.restore_episodes:
            restores = [Restore("none", "restore_episodes=False")] * len(names)
        self.restores = tuple(restores)
        self.seeds = options.seeds
        self.frame_skip = options.frame_skip or 1
        self._reset_options = None if options.reset_options is None else dict(options.reset_options)
        self.info_keys = options.info_keys
        self.entries = dict.fromkeys(options.info_keys, ((), np.float32))
        self.observation_space = observation_space
        self.action_space = action_space
        self.action_format = action_format_of(action_space, options.categorical, options.clip)
        self.num_envs = len(self.names)
        self.episodes = [-1] * self.num_envs
        lost = [i for i, restore in enumerate(restores) if restore.method == "none"]
        reasons = sorted({f"{names[i]}: {restores[i].reason}" for i in lost})
        self.lost = f"environments {ranges(lost)} ({listed(reasons, most=3)})" if lost else None

    def seed(self, seed: int) -> None:
        self.seeds = EpisodeSeeds(seed, self.seeds.first_env)
        self.episodes = [-1] * self.num_envs

    def prepare(self, horizon: int) -> Buffers:
        layout = self.layout()
        buffers = Buffers(layout.leaves, self.num_envs, horizon, self.entries)
        self.attach(layout, buffers.rows())
        return buffers

    def layout(self) -> ObservationLayout:
        """The arrays of an observation, and of a mask in the ``info``."""
        mask, size = self.first_mask(), self.action_format.mask_size
        return ObservationLayout(self.observation_space, mask, size)

    def attach(self, layout: ObservationLayout, rows: Sequence[Row]) -> None:
        """Set how observations are written, and where."""
        self._layout, self._rows = layout, rows

    @abstractmethod
    def first_mask(self) -> Any:
        """The action mask in the ``info`` of the first environment's first reset; or ``None``."""


def reset_env(
    env: Any, seed: int, options: Mapping[str, Any] | None = None
) -> tuple[Any, dict[str, Any]]:
    """Begin an episode; without ``options`` its ``reset`` need not take any."""
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
    """Raise `StateMismatchError` if a replayed episode has other observations than those saved."""
    for value, array in zip(found, saved, strict=False):
        got = np.asarray(value).astype(array.dtype)
        if not np.array_equal(got, array, equal_nan=True):
            raise StateMismatchError(
                f"{which}, played again from its seed, does not lead to the saved observation. Is "
                "it built with the same arguments, and does nothing outlast its episodes? "
                "restore_episodes=False of VectorCollector begins new episodes."
            )


def no_attribute(env: str, name: str) -> ConfigError:
    """The error of setting an attribute that does not exist."""
    return ConfigError(
        f"{env} has no attribute {name!r} to be set: name one that it has from the beginning."
    )


_BLOCK = 64  # seeds made at once: a SeedSequence costs as much as a short episode's reset


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
