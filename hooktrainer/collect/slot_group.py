"""Environments with a vector entry point of their own, whose episodes can be told apart.

Such an environment, Gymnasium's vectorised CartPole for one, steps all of its sub-environments with
array arithmetic and draws all first states from one generator. Where each array of its state has
one dimension over the sub-environments, an episode is begun in a second instance with a single
sub-environment, seeded for that episode, and its state is written into the slot of the one that
finished. Whether that is right is tried out before it is relied on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from .buffers import Row
from .group import EnvGroup, Finished, GroupOptions, said_autoreset_mode
from .info import of_one, write_vector_info
from .restore import NOT_ASKED, Restore, dumps, infos_of, loads
from .spaces import Array

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]
Axes = Mapping[str, int]
"""For each array of an environment's state, by attribute, the dimension over sub-environments."""
_RESTORE = Restore("state", "each sub-environment's part of the state arrays")
_STEPS = 8


class SlotGroup(EnvGroup):
    """An `EnvGroup` over one vectorised environment."""

    kind = "slots of one vectorised environment"

    def __init__(self, env: VectorEnv, one: VectorEnv, axes: Axes, options: GroupOptions) -> None:
        restore = _RESTORE if options.restore_episodes else NOT_ASKED
        super().__init__(
            [str(env)] * env.num_envs,
            [restore] * env.num_envs,
            options,
            env.single_observation_space,
            env.single_action_space,
        )
        self._env = env
        self._one = one
        self._places = _places(axes)

    def first_info(self) -> dict[str, Any]:
        """The ``info`` of the first sub-environment's first reset."""
        return of_one(self._one.reset(seed=self.seeds(0, 0), options=self._reset_options)[1])

    def _trial(self) -> Iterator[tuple[Mapping[str, Any], bool]]:
        for info, is_last in infos_of(self._one, self.seeds(0, 0)):
            yield of_one(info), is_last

    def reset(self, row: Row) -> None:
        """Begin the next episode of every sub-environment."""
        self._env.reset(seed=0)  # makes the arrays; every slot is written below
        for i in range(self.num_envs):
            self._begin(i, self.episodes[i] + 1, row)

    def step(self, actions: Array, row: Row) -> list[Finished]:
        """Step all sub-environments and begin the next episode of those that finished."""
        taken = self._format.to_env(actions)
        observation, reward, terminated, truncated, info = self._env.step(taken)
        self._layout.write(row.observation, ..., observation, info)
        row.reward[...] = reward
        row.terminated[...] = terminated
        row.truncated[...] = truncated
        if self.info_keys:
            write_vector_info(self.info_keys, row, info, self.names[0])
        done = terminated | truncated
        if not np.count_nonzero(done):  # quicker than done.any()
            return []
        ended = np.flatnonzero(done).tolist()
        finished = [(i, self._layout.copies(observation, info, i)) for i in ended]
        for i in ended:
            self._begin(i, self.episodes[i] + 1, row)
        return finished

    def snapshots(self) -> list[str | None]:
        """The state of each sub-environment."""
        return [
            dumps({name: part.copy() for name, part in _part(self._env, self._places, i)})
            if restore.method == "state"
            else None
            for i, restore in enumerate(self.restores)
        ]

    def _restore(
        self,
        episodes: Sequence[int],
        snapshots: Sequence[str | None],
        actions: Sequence[Array | None],
        row: Row,
    ) -> list[int]:
        self._env.reset(seed=0)
        self.episodes = list(episodes)
        for i, text in enumerate(snapshots):
            if text is not None:
                saved = loads(text)
                for name, part in _part(self._env, self._places, i):
                    part[...] = saved[name]
        return []

    def _holders(self) -> Sequence[Any]:
        return [self._env, self._one]

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
        self._one.close()

    def _begin(self, i: int, episode: int, row: Row) -> None:
        self.episodes[i] = episode
        seed = self.seeds(i, episode)
        observation, info = self._one.reset(seed=seed, options=self._reset_options)
        self._layout.check(observation, info, self.names[i], 1)
        _copy(self._places, self._one, 0, self._env, i)
        values = self._layout.values(observation, info)
        for leaf, value in zip(row.observation, values, strict=True):
            leaf[i] = value[0]


Places = list[tuple[str, tuple[slice, ...]]]
"""By the name of an array of the state, what stands before the slot in an index."""


def _places(axes: Axes) -> Places:
    return [(name, (slice(None),) * axis) for name, axis in axes.items()]


def _part(env: VectorEnv, places: Places, i: int) -> Iterator[tuple[str, Array]]:
    """By name what belongs to a sub-environment, as views of one element at least."""
    for name, before in places:
        place = (*before, slice(i, i + 1))
        yield name, getattr(env, name)[place]


def _copy(places: Places, source: VectorEnv, i: int, target: VectorEnv, j: int) -> None:
    for name, before in places:
        there, here = (*before, j), (*before, i)
        getattr(target, name)[there] = getattr(source, name)[here]


def slot_axes(make: Callable[[int], VectorEnv]) -> Axes | None:
    """The state arrays of a vectorised environment and their dimensions over sub-environments."""
    made: list[VectorEnv] = []

    def build(num_envs: int, seed: int) -> VectorEnv:
        made.append(make(num_envs))
        made[-1].reset(seed=seed)
        return made[-1]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            two, three = build(2, 0), build(3, 0)
            if said_autoreset_mode(two) is AutoresetMode.SAME_STEP:
                return None  # the final observation is not where it is looked for
            axes = _find_axes(two, three)
            return axes if axes and _independent(axes, build) else None
    except (AttributeError, TypeError, ValueError, IndexError):
        return None  # not an environment of this kind: lists of objects, arrays of another library
    finally:
        for env in made:
            env.close()


def _find_axes(two: VectorEnv, three: VectorEnv) -> Axes | None:
    for env in (two, three):  # some arrays change type or appear with the first step
        env.action_space.seed(0)
        env.step(env.action_space.sample())
    axes = {}
    for name, value in vars(two).items():
        other = vars(three).get(name)
        if isinstance(value, np.ndarray) and isinstance(other, np.ndarray):
            if value.shape == other.shape:
                if not np.array_equal(value, other):
                    return None
                continue
            sizes = list(zip(value.shape, other.shape, strict=True))
            if sizes.count((2, 3)) != 1:
                return None
            axes[name] = sizes.index((2, 3))
        elif name in ("num_envs", "_np_random_seed"):
            continue
        elif not isinstance(value, gym.Space | EnvSpec | np.random.Generator) and value != other:
            return None
    return axes


def _independent(axes: Axes, build: Callable[[int, int], VectorEnv]) -> bool:
    """Whether a slot that is replaced goes on as its source does, and the others as before."""
    one, three, twin = build(1, 1), build(3, 2), build(3, 2)
    three.action_space.seed(0)
    warm_up = three.action_space.sample()
    three.step(warm_up)
    twin.step(warm_up)
    _copy(_places(axes), one, 0, three, 1)
    random_state = three.np_random.bit_generator.state
    for _ in range(_STEPS):
        action = three.action_space.sample()
        mixed, alone, untouched = three.step(action), one.step(action[1:2]), twin.step(action)
        for got, source, others in zip(mixed[:4], alone[:4], untouched[:4], strict=True):
            for i, (expected, place) in enumerate(((others, 0), (source, 0), (others, 2))):
                if not _equal(got, i, expected, place):
                    return False
        if (mixed[2] | mixed[3] | untouched[2] | untouched[3]).any():
            break  # from here on they reset themselves
        if three.np_random.bit_generator.state != random_state:
            return False  # the dynamics draw from the generator that all share
    return True


def _equal(a: Any, i: int, b: Any, j: int) -> bool:
    if isinstance(a, dict):
        return all(_equal(a[key], i, b[key], j) for key in a)
    return bool(np.array_equal(a[i], b[j], equal_nan=a.dtype.kind == "f"))
