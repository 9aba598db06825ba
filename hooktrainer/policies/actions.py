"""Conversion of a policy's action to the environment's, as plain data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Path = tuple[str | int, ...]
_MOST_PARTS = 1 << 12
_MOST_DEPTH = 64  # keys that lead to a part


@dataclasses.dataclass(frozen=True)
class Part:
    """Converts an array of a policy's action to what the environment takes.

    Attributes:
        path: Keys and tuple indices that lead to it in the environment's action; empty for all.
        shape: The environment's shape.
        dtype: The environment's type.
        start: Offset of discrete actions, which count from 0; ``None`` for others.
        sizes: Sizes of the concatenated one-hot vectors that the policy returns; empty for indices
            or numbers.
        low: Least action ``[*shape]`` if the environment clips actions; else ``None``.
        high: Greatest action, likewise.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: str
    start: Any = None
    sizes: tuple[int, ...] = ()
    low: Any = None
    high: Any = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES or len(self.path) > _MOST_DEPTH:
            raise ValueError(f"an action has the type {self.dtype!r:.40} or a deep path")
        for numbers in (self.start, self.low, self.high):
            check_start(numbers, self.shape)
        if (self.low is None) != (self.high is None):
            raise ValueError("the action has one bound")

    @property
    def width(self) -> int:
        """Its size in the vector of a policy's action with several parts."""
        return sum(self.sizes) or math.prod(self.shape)

    def tensor(self, output: Tensor) -> Tensor:
        """Return the actions ``[*batch, *shape]`` for the policy's ``[*batch, ...]``."""
        if self.sizes:
            indices = [one_hot.argmax(-1) for one_hot in torch.split(output, list(self.sizes), -1)]
            output = torch.stack(indices, -1) if self.shape else indices[0]
        if self.start is not None:
            output = output + torch.as_tensor(self.start)
        if self.low is not None:
            low, high = (torch.as_tensor(x, dtype=output.dtype) for x in (self.low, self.high))
            output = output.clamp(low, high)
        return output.to(getattr(torch, self.dtype))


@dataclasses.dataclass(frozen=True)
class Action:
    """An action: one part, or a dict or tuple of parts, which the policy returns as one vector."""

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.parts) <= _MOST_PARTS:
            raise ValueError(f"the action has {len(self.parts)} parts")
        _ = _tree([(part.path, None) for part in self.parts])  # else there is no such tree

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a policy's action, without its batch."""
        one = self.parts[0]
        if one.path or one.sizes:
            return (sum(part.width for part in self.parts),)
        return one.shape

    @property
    def is_index(self) -> bool:
        """Whether the policy's action is indices, which have no fractions."""
        one = self.parts[0]
        return not one.path and one.start is not None and not one.sizes

    def tensors(self, output: Tensor) -> list[Tensor]:
        """Return the actions of each part, ``[*batch, *shape]``, for the policy's output."""
        if not self.parts[0].path:
            return [self.parts[0].tensor(output)]
        found = []
        columns = torch.split(output, [part.width for part in self.parts], -1)
        for part, own in zip(self.parts, columns, strict=True):
            if not part.sizes:
                own = own.reshape(*own.shape[:-1], *part.shape)
                whole = np.dtype(part.dtype).kind in "iu" and own.is_floating_point()
                own = own.round() if whole else own
            found.append(part.tensor(own))
        return found

    def tree(self, parts: Sequence[Any]) -> Any:
        """Return the action that consists of the parts."""
        return _tree([(part.path, one) for part, one in zip(self.parts, parts, strict=True)])

    def convert(self, output: Tensor) -> Any:
        """Return the action, or a tree of actions, ``[batch, *shape]`` for the policy's output."""
        return self.tree([action.numpy() for action in self.tensors(output)])

    def __str__(self) -> str:
        return ", ".join(
            f"{'.'.join(map(str, part.path))}{': ' * bool(part.path)}{part.dtype}{list(part.shape)}"
            for part in self.parts
        )


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


DTYPES = frozenset(np.dtype(code).name for code in "?bhilBHILefd")
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
