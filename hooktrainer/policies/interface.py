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
from .actions import Action, JointAction, decode_action
from .plain_parts import DTYPES, Path, check_start, decode

Array = npt.NDArray[Any]
MASK = "action_mask"

MOST_NUMBERS = 1 << 30
"""So many numbers may an observation have."""


@dataclasses.dataclass(frozen=True)
class Observation:
    """One array that a policy reads.

    Attributes:
        key: What the policy calls it, with dots between the parts.
        path: The keys that lead to it in a dict observation, the places in a tuple.
        shape: Its shape for one environment.
        dtype: The type it is converted to.
        start: What is subtracted, so that discrete values count from 0.
    """

    key: str
    path: Path
    shape: tuple[int, ...]
    dtype: str
    start: Any = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"{self.key} has the type {self.dtype!r:.40}")
        check_start(self.start, self.shape)

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
class Interface:
    """All that a policy reads, in the order of its inputs, and its action."""

    observations: tuple[Observation, ...]
    action: Action | JointAction

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
                tuple(decode(Observation, part) for part in data["observations"]),
                decode_action(data["action"]),
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
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            what = "dict" if isinstance(key, str) else "tuple"
            raise ConfigError(
                f"the observation lacks {'.'.join(map(str, part.path))!r}; the policy reads a "
                f"{what} with it."
            ) from None
    return value
