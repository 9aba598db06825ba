"""Conversion of a policy's action to the environment's, as plain data."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..errors import ConfigError

Array = npt.NDArray[Any]
Path = tuple[str | int, ...]
_MOST_PARTS = 1 << 12
_MOST_DEPTH = 64  # keys that lead to a part


@dataclasses.dataclass(frozen=True)
class Action:
    """Converts a policy's action to what the environment takes.

    Attributes:
        shape: The environment's shape.
        dtype: The environment's type.
        start: Offset of discrete actions, which count from 0.
        sizes: Sizes of the concatenated one-hot vectors that the policy returns; empty for indices
            or numbers.
        low: Least action ``[*shape]`` if the environment clips actions; else ``None``.
        high: Greatest action, likewise.
    """

    shape: tuple[int, ...]
    dtype: str
    start: Any = None
    sizes: tuple[int, ...] = ()
    low: Any = None
    high: Any = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"the action has the type {self.dtype!r:.40}")
        for numbers in (self.start, self.low, self.high):
            check_start(numbers, self.shape)
        if (self.low is None) != (self.high is None):
            raise ValueError("the action has one bound")

    def convert(self, actions: Tensor) -> Array:
        """Return the actions ``[batch, *shape]`` for the policy's ``[batch, ...]``."""
        array: Array = actions.numpy()
        if self.sizes:
            parts = np.split(array, np.cumsum(self.sizes)[:-1], axis=-1)
            indices = np.stack([part.argmax(-1) for part in parts], axis=-1)
            array = indices if self.shape else indices[..., 0]
        if self.start is not None:
            array = array + np.asarray(self.start)
        if self.low is not None:
            array = np.clip(array, np.asarray(self.low), np.asarray(self.high))
        return array.astype(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclasses.dataclass(frozen=True)
class JointAction:
    """The same for a dict or tuple of actions, which the policy returns as one vector."""

    parts: tuple[tuple[Path, Action], ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.parts) <= _MOST_PARTS:
            raise ValueError(f"the action has {len(self.parts)} parts")
        if any(not 0 < len(path) <= _MOST_DEPTH or action.sizes for path, action in self.parts):
            raise ValueError("a part of the action has no place, or is one-hot")
        _ = _tree([(path, None) for path, _ in self.parts])  # else there is no such tree

    def convert(self, actions: Tensor) -> Any:
        """Return a tree of actions ``[batch, *shape]`` for the policy's ``[batch, n]``."""
        widths = [math.prod(action.shape) for _, action in self.parts]
        if actions.ndim != 2 or actions.shape[1] != sum(widths):
            raise ConfigError(
                f"the policy's action has shape {list(actions.shape)}; its parts need "
                f"[batch, {sum(widths)}]."
            )
        converted = []
        for (path, action), part in zip(
            self.parts, actions.split_with_sizes(widths, -1), strict=True
        ):
            columns = part.round() if np.dtype(action.dtype).kind in "iu" else part
            converted.append((path, action.convert(columns.reshape(-1, *action.shape))))
        return _tree(converted)

    def __str__(self) -> str:
        return ", ".join(f"{'.'.join(map(str, path))}: {action}" for path, action in self.parts)


def single(converted: Any) -> Any:
    """The only action of a converted batch of one."""
    if isinstance(converted, dict):
        return {key: single(part) for key, part in converted.items()}
    return tuple(map(single, converted)) if isinstance(converted, tuple) else converted[0]


def _tree(parts: list[tuple[Path, Any]]) -> Any:
    """A dict of parts by path, or a tuple where the keys are integers."""
    if any(not path for path, _ in parts):
        if len(parts) > 1:
            raise ValueError("two parts of the action have one place")
        return parts[0][1]
    keys = list(dict.fromkeys(path[0] for path, _ in parts))
    made = {
        key: _tree([(path[1:], value) for path, value in parts if path[0] == key]) for key in keys
    }
    if any(isinstance(key, int) for key in keys):
        if keys != list(range(len(keys))):
            raise ValueError(f"{keys!r:.80} are no places in a tuple")
        return tuple(made.values())
    return made


_KINDS = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64)}
DTYPES = frozenset({"bool", *(f"{kind}{n}" for kind, bits in _KINDS.items() for n in bits)})
"""The types of observations and actions."""
_MOST_DIMS = 16


def check_start(start: Any, shape: tuple[int, ...]) -> None:
    """Refuse an offset that would enlarge an array."""
    if len(shape) > _MOST_DIMS:
        raise ValueError(f"{len(shape)} dimensions")
    if start is None:
        return
    array = np.asarray(start)
    if array.dtype.kind not in "biuf" or np.broadcast_shapes(array.shape, shape) != shape:
        raise ValueError(f"{start!r:.80} does not fit the shape {list(shape)}")
