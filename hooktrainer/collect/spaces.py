"""How Gymnasium's spaces become tensors: the leaves of an observation, the format of actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ..errors import ConfigError

Array = npt.NDArray[Any]
MASK = "action_mask"

# Where the tensor's type is not the space's own. torch computes in float32 and indexes with int64.
_DTYPES: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.uint16): np.dtype(np.int32),
    np.dtype(np.uint32): np.dtype(np.int64),
    np.dtype(np.uint64): np.dtype(np.int64),
}
_RESERVED = {"action", "done", "terminated", "truncated", "reward", "next", "collector", "is_init"}


@dataclass(frozen=True)
class Leaf:
    """One array of an observation.

    Attributes:
        key: Its key in the batch.
        path: The keys that lead to it in a dict observation.
        shape: Its shape for one environment.
        dtype: The type it is stored in.
        start: What is subtracted, so that discrete values count from 0; ``None`` for nothing.
    """

    key: tuple[str, ...]
    path: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: Any = None


class ObservationLayout:
    """The leaves of an observation space, and how a group writes them into preallocated rows.

    The same code serves one environment and a batch of them: a batched dict observation is a dict
    of batched arrays.

    Args:
        space: The observation space of one environment.
        mask: The action mask that the environment puts in its ``info``, as an example; ``None`` if
            it gives none. It becomes the last leaf, ``"action_mask"``, boolean.

    Raises:
        ConfigError: If a part of the space has no tensor form, or a key is taken.
    """

    def __init__(self, space: spaces.Space[Any], mask: Any = None) -> None:
        leaves = list(_leaves(space, ()))
        self.mask_in_info = mask is not None and all(leaf.key != (MASK,) for leaf in leaves)
        if self.mask_in_info:
            shape = np.shape(mask)
            leaves.append(Leaf((MASK,), (), shape, np.dtype(bool)))
        for leaf in leaves:
            if leaf.key[0] in _RESERVED:
                raise ConfigError(
                    f"The observation has the key {leaf.key[0]!r}, which the batch needs for "
                    "itself. Rename it in the environment."
                )
        self.leaves = tuple(leaves)
        self._paths = tuple(leaf.path for leaf in leaves[: -1 if self.mask_in_info else None])
        self._starts = tuple(leaf.start for leaf in leaves)
        # The common case, one array and nothing else, is written without any call.
        self.is_single = self._paths == ((),) and not self.mask_in_info and leaves[0].start is None

    def observation_values(self, observation: Any) -> list[Any]:
        """The leaves of ``observation``, uncopied and in order, without a mask from the info."""
        found = []
        for path, start in zip(self._paths, self._starts, strict=False):
            value = observation
            for key in path:
                value = None if value is None else value[key]
            if value.__class__ is not np.ndarray:
                refuse_missing(value, "observation", path)
            found.append(value if start is None else value - start)
        return found

    def values(self, observation: Any, info: Mapping[str, Any]) -> list[Any]:
        """All leaves, uncopied and in order."""
        found = self.observation_values(observation)
        if self.mask_in_info:
            try:
                mask = info[MASK]
            except KeyError:
                raise KeyError(
                    f"info[{MASK!r}] is missing. The environment gave an action mask when it was "
                    "reset, so it has to give one at every step."
                ) from None
            refuse_missing(mask, "info", (MASK,))
            found.append(mask)
        return found

    def write(
        self, rows: Sequence[Array], index: Any, observation: Any, info: Mapping[str, Any]
    ) -> None:
        """Copy the leaves of ``observation`` to ``rows[leaf][index]``."""
        if self.is_single and observation.__class__ is np.ndarray:
            rows[0][index] = observation
            return
        for row, value in zip(rows, self.values(observation, info), strict=True):
            row[index] = value

    def copies(self, observation: Any, info: Mapping[str, Any], index: Any = ...) -> list[Array]:
        """Copies of the leaves, or of one environment's part of batched leaves."""
        return [
            np.array(np.asarray(value)[index], dtype=leaf.dtype)
            for value, leaf in zip(self.values(observation, info), self.leaves, strict=True)
        ]


def refuse_missing(value: Any, what: str, path: Sequence[str] = ()) -> None:
    """Refuse ``None``, by itself or among numbers, of which NumPy would make NaN or false.

    Args:
        value: What an environment returned.
        what: What it is, such as ``"reward"``.
        path: The keys that lead to it.

    Raises:
        ConfigError: If it is, or holds, ``None``.
    """
    if value is None or (
        not isinstance(value, (int, float, np.generic)) and np.asarray(value).dtype == object
    ):
        where = what + "".join(f"[{key!r}]" for key in path)
        raise ConfigError(
            f"the environment returned {where} = {value!r:.80}, which is no number: let reset() "
            "return (observation, info), and step() return (observation, reward, terminated, "
            "truncated, info), without None among the values."
        )


def _leaves(space: spaces.Space[Any], path: tuple[str, ...]) -> Iterator[Leaf]:
    key = path or ("observation",)
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from _leaves(part, (*path, name))
    elif isinstance(space, spaces.Box | spaces.MultiBinary):
        dtype = np.dtype(space.dtype)
        dtype = np.dtype(bool) if key[-1] == MASK else _DTYPES.get(dtype, dtype)
        yield Leaf(key, path, tuple(space.shape), dtype)
    elif isinstance(space, spaces.Discrete):
        yield Leaf(key, path, (), np.dtype(np.int64), int(space.start) or None)
    elif isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start) if np.any(space.start) else None
        yield Leaf(key, path, tuple(space.shape), np.dtype(np.int64), start)
    else:
        raise ConfigError(
            f"The observation space {'.'.join(path) or 'of the environment'} is a "
            f"{type(space).__name__}, which has no tensor form. Turn it into Box, Discrete, "
            "MultiDiscrete, MultiBinary or Dict, for instance with "
            "gymnasium.wrappers.FlattenObservation."
        )


class ActionFormat:
    """How the policy writes actions, and how the environments take them.

    Args:
        space: The action space of one environment: Discrete, MultiDiscrete, MultiBinary or Box.
        categorical: Whether discrete actions are indices (int64), or one-hot vectors; of a
            MultiDiscrete space the one-hot vectors stand one after another.

    Attributes:
        shape: Shape of one environment's action as the policy writes it.
        dtype: Its type, for actions that are drawn at random.

    Raises:
        ConfigError: If the space is of another kind.
    """

    def __init__(self, space: spaces.Space[Any], categorical: bool = True) -> None:
        self.space = space
        self.shape: tuple[int, ...] = tuple(space.shape or ())
        self.dtype: np.dtype[Any] = np.dtype(np.int64)
        self._start: Any = None
        self._sizes: list[int] = []  # of the one-hot vectors
        if isinstance(space, spaces.Discrete):
            self._start = int(space.start) or None
            self._sizes = [] if categorical else [int(space.n)]
        elif isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
            self._start = np.asarray(space.start) if np.any(space.start) else None
            self._sizes = [] if categorical else space.nvec.tolist()
        elif isinstance(space, spaces.Box | spaces.MultiBinary):
            self.dtype = _DTYPES.get(np.dtype(space.dtype), np.dtype(space.dtype))
        else:
            raise ConfigError(
                f"The action space {space} has no tensor form. Use Discrete, MultiDiscrete (one "
                "dimension), MultiBinary or Box, for instance with gymnasium.wrappers."
                "TransformAction."
            )
        self.is_index = isinstance(space, spaces.Discrete)
        self._is_discrete = self.dtype == np.int64 and not isinstance(space, spaces.Box)
        self._ends = np.cumsum(self._sizes)[:-1]
        if self._sizes:
            self.shape = (sum(self._sizes),)

    def check(self, actions: Array, num_envs: int) -> None:
        """Raise a `ConfigError` if ``actions`` cannot be what the policy means to do."""
        expected = (num_envs, *self.shape)
        if actions.shape != expected:
            hint = ""
            if self._is_discrete and actions.ndim == 2 and not self._sizes:
                hint = " If these are one-hot vectors, pass categorical_actions=False."
            elif self._sizes and actions.shape == (num_envs, *(self.space.shape or ())):
                hint = " If these are indices, pass categorical_actions=True."
            raise ConfigError(
                f"The policy's action has shape {list(actions.shape)}; {self.space} with "
                f"{num_envs} environments needs {list(expected)}.{hint}"
            )
        if self._is_discrete and not self._sizes and actions.dtype.kind not in "iu":
            raise ConfigError(
                f"The policy's action is {actions.dtype}; {self.space} needs indices (int64)."
            )

    def to_env(self, actions: Array) -> Array:
        """The policy's actions, ``[num_envs, *shape]``, as the environments take them.

        The array is the environments' own: nothing writes to it later.
        """
        if self._sizes:
            parts = np.split(actions, self._ends, axis=-1)
            indices = np.stack([part.argmax(-1) for part in parts], axis=-1)
            actions = indices[..., 0] if self.is_index else indices
        if self._start is not None:
            return np.asarray(actions + self._start)
        return np.array(actions, dtype=self.space.dtype)

    def from_env(self, actions: Array) -> Array:
        """The inverse of `to_env`."""
        if self._start is not None:
            actions = actions - self._start
        if self._sizes:
            columns = actions[:, None] if self.is_index else actions
            vectors = [
                np.eye(size, dtype=np.int64)[columns[:, i]] for i, size in enumerate(self._sizes)
            ]
            return np.concatenate(vectors, axis=-1)
        return actions.astype(self.dtype, copy=False)


class RandomActions:
    """Draws actions for all environments at once, from a generator of its own.

    Args:
        action_format: The format to draw in.
        num_envs: How many environments.
        seed: Seed of the generator.
    """

    def __init__(self, action_format: ActionFormat, num_envs: int, seed: int) -> None:
        self._format = action_format
        self._space = gym.vector.utils.batch_space(action_format.space, num_envs)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start the generator anew."""
        self._space.seed(seed)

    @property
    def generator(self) -> np.random.Generator:
        """The generator the actions are drawn from."""
        return self._space.np_random

    def draw(self, mask: Array | None = None) -> Array:
        """Actions ``[num_envs, *shape]``, uniform among those allowed.

        Args:
            mask: Boolean, ``[num_envs, n]`` for ``n`` actions; for a MultiDiscrete space the masks
                of its parts stand one after another.
        """
        if mask is None:
            return self._format.from_env(np.asarray(self._space.sample()))
        # The largest of independent uniform numbers is equally likely to be any of the allowed.
        scores = np.where(mask, self.generator.random(mask.shape), -1.0)
        space = self._format.space
        if isinstance(space, spaces.Discrete):
            return self._format.from_env(scores.argmax(-1) + int(space.start))
        if not isinstance(space, spaces.MultiDiscrete):
            raise ConfigError(f"An action mask goes with discrete actions; the space is {space}.")
        parts = np.split(scores, np.cumsum(space.nvec)[:-1], axis=-1)
        indices = np.stack([part.argmax(-1) for part in parts], axis=-1)
        return self._format.from_env(indices + space.start)
