"""The leaves of an observation space: arrays with their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ..errors import ConfigError

MASK = "action_mask"
CRITIC = "critic"  # what values see, where that is not what the policy sees
POLICY = "policy"

Path = tuple[str | int, ...]

# Where the tensor's type is not the space's own. torch computes in float32 and indexes with int64.
DTYPES: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float16): np.dtype(np.float32),
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.uint16): np.dtype(np.int32),
    np.dtype(np.uint32): np.dtype(np.int64),
    np.dtype(np.uint64): np.dtype(np.int64),
}


@dataclass(frozen=True)
class Leaf:
    """One array of an observation.

    Attributes:
        key: Key in the batch.
        path: Keys of nested dicts and indices of tuples that lead to it.
        shape: Shape for one environment.
        dtype: The stored type.
        start: Subtracted, so that discrete values begin at 0; ``None`` for nothing.
        space: Its space; ``None`` for a mask that is not part of the observation.
    """

    key: tuple[str, ...]
    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: Any = None
    space: spaces.Space[Any] | None = None


class ObservationGroups(NamedTuple):
    """The parts of an observation for policies and for values; the same object if undivided."""

    policy: spaces.Space[Any]
    value: spaces.Space[Any]


def groups_of(space: spaces.Space[Any]) -> ObservationGroups:
    """Divide an observation: with a Dict key ``"critic"``, values read it and policies the rest.

    If the rest has the key ``"policy"``, policies read only that.
    """
    if not isinstance(space, spaces.Dict) or CRITIC not in space.spaces:
        return ObservationGroups(space, space)
    rest = {key: part for key, part in space.spaces.items() if key != CRITIC}
    if POLICY in rest:
        rest = {POLICY: rest[POLICY]}
    if not rest.keys() - {MASK}:
        raise ConfigError(
            f"The observations have {CRITIC!r}, which values alone read, and nothing for the "
            f"policy: add an entry for it, such as {POLICY!r}."
        )
    return ObservationGroups(spaces.Dict(rest), spaces.Dict({CRITIC: space.spaces[CRITIC]}))


def leaves_of(space: spaces.Space[Any]) -> tuple[Leaf, ...]:
    """Return the leaves of an observation space, in order.

    The key of a plain space is ``"observation"``, those of a dict are its own, those of a tuple
    outside of a dict ``("observation", "0")`` and so on.
    """
    leaves = tuple(_leaf(path, part) for path, part in parts_of(space))
    empty = [leaf for leaf in leaves if 0 in leaf.shape]
    if empty or not leaves:
        what = f"{'.'.join(map(str, empty[0].path))} in {space}" if empty else space
        raise ConfigError(
            f"The observation space {what} is empty: leave it out, for instance with "
            "gymnasium.wrappers.FilterObservation, or give it a number at least."
        )
    return leaves


def parts_of(space: spaces.Space[Any]) -> list[tuple[Path, spaces.Space[Any]]]:
    """Return the leaf spaces of nested Dicts and Tuples, each with its path."""
    inner: list[tuple[str | int, spaces.Space[Any]]]
    if isinstance(space, spaces.Dict):
        inner = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        inner = list(enumerate(space.spaces))
    else:
        return [((), space)]
    return [((key, *path), part) for key, held in inner for path, part in parts_of(held)]


def _leaf(path: Path, space: spaces.Space[Any]) -> Leaf:
    key = tuple(map(str, path))
    if not path or isinstance(path[0], int):
        key = ("observation", *key)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        dtype = np.dtype(space.dtype)
        dtype = np.dtype(bool) if key[-1] == MASK else DTYPES.get(dtype, dtype)
        return Leaf(key, path, tuple(space.shape), dtype, None, space)
    if isinstance(space, spaces.Discrete):
        return Leaf(key, path, (), np.dtype(np.int64), int(space.start) or None, space)
    if isinstance(space, spaces.MultiDiscrete):
        start: npt.NDArray[Any] | None = np.asarray(space.start) if np.any(space.start) else None
        dtype = np.dtype(space.dtype)
        dtype = dtype if dtype.itemsize == 1 else np.dtype(np.int64)  # grids stay as small
        return Leaf(key, path, tuple(space.shape), dtype, start, space)
    raise ConfigError(
        f"The observation space {'.'.join(map(str, path)) or 'of the environment'} is a "
        f"{type(space).__name__}, which has no tensor form. Turn it into Box, Discrete, "
        "MultiDiscrete, MultiBinary, Dict or Tuple with a gymnasium.ObservationWrapper, or "
        "leave it out of a Dict with gymnasium.wrappers.FilterObservation."
    )
