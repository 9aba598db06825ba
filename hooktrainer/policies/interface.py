"""What goes into a policy and what comes out, as plain data.

It says of a policy what `hooktrainer.collect.spaces` finds out from Gymnasium's spaces, so that
a saved policy needs neither.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..base.words import printable
from ..errors import ConfigError, DamagedCheckpointError

Array = npt.NDArray[Any]
MASK = "action_mask"

_KINDS = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64)}
DTYPES = frozenset({"bool", *(f"{kind}{n}" for kind, bits in _KINDS.items() for n in bits)})
"""The types of observations and actions."""

MOST_NUMBERS = 1 << 30
"""So many numbers may an observation have."""

_MOST_DIMS = 16


@dataclasses.dataclass(frozen=True)
class Observation:
    """One array that a policy reads.

    Attributes:
        key: What the policy calls it, with dots between the parts.
        path: The keys that lead to it in a dict observation.
        shape: Its shape for one environment.
        dtype: The type it is converted to.
        start: What is subtracted, so that discrete values count from 0.
    """

    key: str
    path: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    start: Any = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"{self.key} has the type {self.dtype!r:.40}")
        _check_start(self.start, self.shape)

    def example(self) -> torch.Tensor:
        """Return a tensor ``[1, *shape]`` without content, on the device ``meta``."""
        if math.prod(self.shape) > MOST_NUMBERS:
            raise ValueError(f"{self.key} has {math.prod(self.shape):,} numbers")
        plain = np.empty(0, self.dtype)
        dtype = torch.from_numpy(plain).dtype
        return torch.empty((1, *self.shape), dtype=dtype, device="meta")

    @property
    def is_mask(self) -> bool:
        """Whether it is the mask that an environment gives beside the observation."""
        return self.key == MASK and not self.path

    def convert(self, value: Any) -> tuple[torch.Tensor, bool]:
        """Return the tensor ``[batch, *shape]``, and whether ``value`` was a batch.

        Raises:
            ConfigError: If ``value`` has another shape, or does not hold numbers.
        """
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:  # uneven rows, a tensor elsewhere
            raise ConfigError(f"{self.key} is not an array: {error}") from None
        if array.dtype.kind not in "biuf":
            raise ConfigError(
                f"{self.key} is a {type(value).__name__}; the policy needs an array of numbers."
            )
        batched = array.ndim == len(self.shape) + 1
        if array.shape[batched:] != self.shape or array.ndim > len(self.shape) + 1:
            expected = list(self.shape)
            raise ConfigError(
                f"{self.key} has shape {list(array.shape)}; the policy needs {expected}, or "
                f"[batch{''.join(f', {size}' for size in expected)}]."
            )
        if self.start is not None:
            array = array - np.asarray(self.start)
        array = np.array(array if batched else array[None], dtype=self.dtype, order="C")
        return torch.from_numpy(array), batched


@dataclasses.dataclass(frozen=True)
class Action:
    """What becomes of a policy's action before an environment takes it.

    Attributes:
        shape: The shape that the environment takes.
        dtype: The type that the environment takes.
        start: What is added to discrete actions, which count from 0.
        sizes: Of the one-hot vectors, one after another, that the policy gives; empty if it gives
            indices or numbers.
    """

    shape: tuple[int, ...]
    dtype: str
    start: Any = None
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"the action has the type {self.dtype!r:.40}")
        _check_start(self.start, self.shape)

    def convert(self, actions: torch.Tensor) -> Array:
        """Return the actions ``[batch, *shape]`` for the policy's ``[batch, ...]``."""
        array: Array = actions.numpy()
        if self.sizes:
            parts = np.split(array, np.cumsum(self.sizes)[:-1], axis=-1)
            indices = np.stack([part.argmax(-1) for part in parts], axis=-1)
            array = indices if self.shape else indices[..., 0]
        if self.start is not None:
            array = array + np.asarray(self.start)
        return array.astype(self.dtype)


@dataclasses.dataclass(frozen=True)
class Interface:
    """All that a policy reads, in the order of its inputs, and its action."""

    observations: tuple[Observation, ...]
    action: Action

    def encode(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Interface:
        """Return what `encode` wrote.

        Raises:
            DamagedCheckpointError: If it is something else; says what, without naming the file.
        """
        try:
            return cls(
                tuple(_decode(Observation, part) for part in data["observations"]),
                _decode(Action, data["action"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            reason = printable(f"{type(error).__name__}: {error}")[:200]
            raise DamagedCheckpointError(f"its interface cannot be: {reason}") from None

    def read(self, observation: Any, action_mask: Any = None) -> tuple[list[torch.Tensor], bool]:
        """Return the policy's inputs, ``[batch, ...]`` each, and whether there was a batch.

        Args:
            observation: An array, or a dict of them, of one environment or a batch.
            action_mask: Boolean ``[actions]`` or ``[batch, actions]``, for a policy that reads the
                mask an environment gives beside its observation.

        Raises:
            ConfigError: If something that the policy reads is missing, or has another shape.
        """
        tensors, sizes = [], dict[str, int | None]()
        for part in self.observations:
            tensor, is_batch = part.convert(_find(part, observation, action_mask))
            tensors.append(tensor)
            sizes[part.key] = len(tensor) if is_batch else None
        if len(set(sizes.values())) > 1:
            told = [f"{key} is {_many(size)}" for key, size in sizes.items()]
            raise ConfigError(f"the parts of the observation differ: {', '.join(told)}.")
        return tensors, None not in sizes.values()


def _many(size: int | None) -> str:
    return "a single one" if size is None else f"a batch of {size}"


def _find(part: Observation, observation: Any, action_mask: Any) -> Any:
    if part.is_mask:
        if action_mask is None:
            raise ConfigError("this policy needs the keyword action_mask.")
        return action_mask
    value = observation
    for key in part.path:
        if not isinstance(value, Mapping) or key not in value:
            raise ConfigError(
                f"the observation lacks {'.'.join(part.path)!r}; the policy reads a dict with it."
            )
        value = value[key]
    return value


def _decode(cls: type[Any], data: Mapping[str, Any]) -> Any:
    values = {name: data[name] for name in (field.name for field in dataclasses.fields(cls))}
    for name, kind in (("shape", int), ("sizes", int), ("path", str)):
        if name in values:
            values[name] = _checked(values[name], kind)
    if not isinstance(values.get("key", ""), str):
        raise ValueError(f"{values['key']!r:.80} is no name")
    return cls(**values)


def _checked(values: Any, kind: type[Any]) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple)) or len(values) > (1 << 20 if kind is int else 99):
        raise ValueError(f"{values!r:.80} is not a list")
    fits = all(type(value) is kind for value in values)
    if not fits or (kind is int and not all(0 <= value < 1 << 40 for value in values)):
        raise ValueError(f"{values!r:.80} is not a list of {kind.__name__}")
    return tuple(values)


def _check_start(start: Any, shape: tuple[int, ...]) -> None:
    """What is added must not make an array larger."""
    if len(shape) > _MOST_DIMS:
        raise ValueError(f"{len(shape)} dimensions")
    if start is None:
        return
    array = np.asarray(start)
    if array.dtype.kind not in "biuf" or np.broadcast_shapes(array.shape, shape) != shape:
        raise ValueError(f"{start!r:.80} does not fit the shape {list(shape)}")
