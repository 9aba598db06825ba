"""Vector environments as groups: Gymnasium's own, each slot with its episodes, and any other."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from ..errors import ConfigError, add_note
from .buffers import Row
from .group import EnvGroup, Finished, GroupOptions, said_autoreset_mode
from .info import of_one, write_vector_info
from .restore import NOT_ASKED, Restore, dumps, infos_of, loads, whole_step
from .spaces import Array

# -- Environments with a vector entry point of their own, whose episodes can be told apart.


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


# -- A vector environment that the user built: asynchronous, wrapped, or of another library.


class ReadyGroup(EnvGroup):
    """An `EnvGroup` over a vector environment as it is.

    Gymnasium's synchronous and asynchronous vector environments take a seed for each
    sub-environment that is reset: their episodes are seeded one by one and restored by replay. Any
    other is seeded once, goes on with its own generators, and cannot be restored. In autoreset mode
    ``DISABLED`` it is told which sub-environments to reset; in ``SAME_STEP`` it does so itself; in
    ``NEXT_STEP`` it does so in a step that is no transition, and ``began`` says for whom.

    An environment whose observations are tensors takes its actions as tensors, where these are.
    """

    kind = "a vector environment"

    def __init__(self, env: VectorEnv, options: GroupOptions) -> None:
        if options.frame_skip != 1:
            raise ConfigError(
                f"frame_skip={options.frame_skip} does not go with {env}: repeat actions in its "
                "environments."
            )
        mode = _mode(env)
        self._seeds_each = _seeds_each(env, mode)
        self._resets_itself = mode is AutoresetMode.SAME_STEP
        self.has_gaps = mode is AutoresetMode.NEXT_STEP and not self._seeds_each
        restore = NOT_ASKED
        if options.restore_episodes and self._seeds_each:
            restore = Restore("replay", "it takes a seed for each episode")
        elif options.restore_episodes:
            restore = Restore("none", "it seeds its sub-environments itself")
        super().__init__(
            [str(env)] * env.num_envs,
            [restore] * env.num_envs,
            options,
            env.single_observation_space,
            env.single_action_space,
        )
        self._env = env
        self._everyone = np.ones(env.num_envs, bool)
        self.began = ~self._everyone
        self._ended = ~self._everyone  # in the last step
        self._device: torch.device | None = None  # of its tensors

    def first_info(self) -> dict[str, Any]:
        """The ``info`` of the first sub-environment's first reset."""
        _, info = self._begin(self._everyone, [0] * self.num_envs)
        return of_one(info)

    def reset(self, row: Row) -> None:
        """Begin the next episode of every sub-environment."""
        self.episodes = [episode + 1 for episode in self.episodes]
        self._ended = ~self._everyone
        observation, info = self._begin(self._everyone, self.episodes)
        self._layout.check(observation, info, self.names[0], self.num_envs)
        self._layout.write(row.observation, ..., observation, info)

    def step(self, actions: Array, row: Row) -> list[Finished]:
        """Step all sub-environments and begin the next episode of those that finished."""
        try:
            observation, reward, terminated, truncated, info = self._outcome(actions)
        except Exception as error:
            add_note(
                error, f"raised while stepping {self._env}, at step {row.index + 1} of a batch"
            )
            raise
        row.reward[...] = reward
        row.terminated[...] = terminated
        row.truncated[...] = truncated
        if self.has_gaps:
            self.began = self._ended
            for array in (row.reward, row.terminated, row.truncated):
                array[self.began] = 0
            self._ended = row.terminated | row.truncated
        self._layout.write(row.observation, ..., observation, info)
        if self.info_keys:
            final = info.get("final_info", {}) if self._resets_itself else None
            write_vector_info(self.info_keys, row, info, self.names[0], final=final)
        done = row.terminated | row.truncated
        if not np.count_nonzero(done):
            return []
        finished = [(i, self._final(i, observation, info)) for i in np.flatnonzero(done).tolist()]
        for i, _ in finished:
            self.episodes[i] += 1
        if self._seeds_each or not (self._resets_itself or self.has_gaps):
            observation, info = self._begin(done, self.episodes)
            self._layout.check(observation, info, self.names[0], self.num_envs)
            for i, _ in finished:
                for leaf, value in zip(
                    row.observation, self._layout.copies(observation, info, i), strict=True
                ):
                    leaf[i] = value
        return finished

    def snapshots(self) -> list[str | None]:
        """Nothing: the states of the sub-environments are out of reach."""
        return [None] * self.num_envs

    def _restore(
        self,
        episodes: Sequence[int],
        snapshots: Sequence[str | None],
        actions: Sequence[Array | None],
        row: Row,
    ) -> list[int]:
        # Side by side, so that all end in the same step.
        self.episodes = list(episodes)
        played = [array for array in actions if array is not None]
        lengths = np.array([len(array) for array in played])
        starts = lengths.max() - lengths
        filler = played[int(lengths.argmax())]
        observation, _ = self._begin(self._everyone, self.episodes)
        for t in range(len(filler)):
            taken = [
                array[t - start] if t >= start else filler[t]
                for array, start in zip(played, starts, strict=True)
            ]
            observation, _, terminated, truncated, _ = self._outcome(np.stack(taken))
            # Those whose turn has not come take any action, and begin when it comes.
            begin = (t + 1 == starts) | ((t + 1 < starts) & (terminated | truncated))
            if begin.any():
                observation, _ = self._begin(begin, self.episodes)
        values = self._layout.observation_values(observation)
        self._hold_against(values, row.observation, str(self._env), "a running episode")
        return []

    def _holders(self) -> Sequence[Any]:
        return [self._env]

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _begin(self, which: Array, episodes: Sequence[int]) -> tuple[Any, dict[str, Any]]:
        options = self._reset_options
        if not which.all():
            options = {**(options or {}), "reset_mask": which}
        seed: Any = None
        if self._seeds_each:
            seed = [self.seeds(i, episode) for i, episode in enumerate(episodes)]
        elif which.all():
            seed = self.seeds(0, max(episodes))
        begun = self._env.reset(seed=seed, options=options)
        self._device = device_of_tensors(begun[0])
        return begun if self._device is None else as_arrays(begun)

    def _outcome(self, actions: Array) -> Any:
        """What the environment returns for the policy's actions."""
        taken: Any = self._format.to_env(actions)
        if self._device is None:
            outcome = whole_step(self._env.step(taken), self._env)
        else:
            stepped = self._env.step(torch.from_numpy(taken).to(self._device))
            outcome = as_arrays(whole_step(stepped, self._env))
        for name, values in zip(("reward", "terminated", "truncated"), outcome[1:4], strict=True):
            if np.shape(values) != (self.num_envs,):
                raise ConfigError(
                    f"{self._env}: step() returned {name} of shape {list(np.shape(values))}; let "
                    f"it return one for each of its environments, [{self.num_envs}]."
                )
        return outcome

    def _final(self, i: int, observation: Any, info: dict[str, Any]) -> list[Array]:
        if not self._resets_itself:
            return self._layout.copies(observation, info, i)
        try:
            final = info["final_obs"]
        except KeyError:
            raise KeyError(
                f"{self._env} is in mode SAME_STEP but gives no info['final_obs'], the true final "
                "observation of the episodes that ended."
            ) from None
        final_info = info.get("final_info", {})
        if isinstance(final, np.ndarray) and final.dtype == object:
            one = {key: value[i] for key, value in final_info.items()}
            return self._layout.copies(final[i], one)
        return self._layout.copies(final, final_info, i)


def _mode(env: VectorEnv) -> AutoresetMode:
    said = said_autoreset_mode(env)
    try:
        return AutoresetMode(said)
    except ValueError:
        raise ConfigError(
            f"{env} says autoreset_mode={said!r}, so nobody knows where its episodes begin: let "
            "its metadata have one of gymnasium.vector.AutoresetMode.NEXT_STEP, SAME_STEP and "
            "DISABLED."
        ) from None


def _seeds_each(env: VectorEnv, mode: AutoresetMode) -> bool:
    base = env.unwrapped
    if isinstance(base, AsyncVectorEnv):
        # Without shared memory a worker in this mode does not notice that it was reset.
        return base.shared_memory or mode is not AutoresetMode.NEXT_STEP
    return isinstance(base, SyncVectorEnv)


def device_of_tensors(tree: Any) -> torch.device | None:
    """Where the first tensor of an observation is; ``None`` if there is none."""
    if isinstance(tree, torch.Tensor):
        return tree.device
    parts = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, tuple) else ()
    return next((found for part in parts if (found := device_of_tensors(part)) is not None), None)


def as_arrays(tree: Any) -> Any:
    """The same with arrays in place of tensors; those of the CPU share their memory."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu().numpy()
    if isinstance(tree, Mapping):
        return {key: as_arrays(value) for key, value in tree.items()}
    return tuple(map(as_arrays, tree)) if isinstance(tree, tuple) else tree
