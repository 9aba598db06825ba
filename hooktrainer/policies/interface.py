"""What goes into a policy and what comes out, as plain data.

It says of a policy what `hooktrainer.collect.spaces` finds out from Gymnasium's spaces, so that
a saved policy needs neither.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import ConfigError
from .actions import DTYPES, Action, JointAction, Path, check_start, decode, decode_action

Array = npt.NDArray[Any]
Answer = Callable[[Sequence[Tensor]], Any]
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

    def example(self, *agents: int) -> Tensor:
        """Return a tensor ``[1, *agents, *shape]`` without content, on the device ``meta``."""
        shape = (*agents, *self.shape)
        if math.prod(shape) > MOST_NUMBERS:
            raise ValueError(f"{self.key} has {math.prod(shape):,} numbers")
        return torch.empty((1, *shape), dtype=self.torch_dtype, device="meta")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The type it is converted to, as PyTorch calls it."""
        return torch.from_numpy(np.empty(0, self.dtype)).dtype

    @property
    def is_mask(self) -> bool:
        """Whether it is the mask that an environment gives beside the observation."""
        return self.key == MASK and not self.path

    def take(
        self, observation: Any, action_mask: Any = None, whose: str = ""
    ) -> tuple[Tensor, bool]:
        """Find it in an observation, or take the mask, and convert it.

        Args:
            observation: The whole observation of one environment or a batch.
            action_mask: The mask that the environment gives beside it.
            whose: Of which agent, for messages.

        Returns:
            The tensor ``[batch, *shape]``, and whether it was a batch.

        Raises:
            ConfigError: If it is missing, has another shape, or does not hold numbers.
        """
        if self.is_mask:
            if action_mask is None:
                raise ConfigError(f"this policy needs the keyword action_mask{whose}.")
            return self.convert(action_mask, whose)
        value = observation
        for key in self.path:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                what = "dict" if isinstance(key, str) else "tuple"
                raise ConfigError(
                    f"the observation{whose} lacks {'.'.join(map(str, self.path))!r}; the policy "
                    f"reads a {what} with it."
                ) from None
        return self.convert(value, whose)

    def convert(self, value: Any, whose: str = "") -> tuple[Tensor, bool]:
        """Return the tensor ``[batch, *shape]``, and whether ``value`` was a batch.

        Raises:
            ConfigError: If ``value`` has another shape, or does not hold numbers.
        """
        name = self.key + whose
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:  # uneven rows, a tensor elsewhere
            raise ConfigError(f"{name} is not an array: {error}") from None
        if array.dtype.kind not in "biuf":
            raise ConfigError(
                f"{name} is a {type(value).__name__}; the policy needs an array of numbers."
            )
        batched = array.ndim == len(self.shape) + 1
        if array.shape[batched:] != self.shape or array.ndim > len(self.shape) + 1:
            expected = list(self.shape)
            raise ConfigError(
                f"{name} has shape {list(array.shape)}; the policy needs {expected}, or "
                f"[batch{''.join(f', {size}' for size in expected)}]."
            )
        if self.start is not None:
            array = array - np.asarray(self.start)
        array = np.array(array if batched else array[None], dtype=self.dtype, order="C")
        return torch.from_numpy(array), batched

    def __str__(self) -> str:
        return f"{self.key}: {self.dtype}{list(self.shape)}"


@dataclasses.dataclass(frozen=True)
class Interface:
    """All that a policy reads, in the order of its inputs, and its action."""

    observations: tuple[Observation, ...]
    action: Action | JointAction

    def encode(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Interface:
        """Return what `encode` wrote; see `decode_interface`."""
        return cls(
            tuple(decode(Observation, part) for part in data["observations"]),
            decode_action(data["action"]),
        )

    def examples(self) -> list[Tensor]:
        """What the policy reads, one of each, without content."""
        return [part.example() for part in self.observations]

    def check(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Look at the shapes of what a policy returns for one observation.

        Returns:
            What it returns behind the action.

        Raises:
            ValueError: If there is no action for each observation.
        """
        if not outputs[0].dim() or len(outputs[0]) != 1:
            raise ValueError("its program does not return an action for each observation")
        return list(outputs[1:])

    reads_state = False  # of a whole, as those of several agents may

    def read(
        self, observation: Any, action_mask: Any = None, state: Any = None
    ) -> tuple[list[Tensor], Answer]:
        """Return the policy's inputs, ``[batch, ...]`` each, and what makes actions of its outputs.

        Args:
            observation: An array, or a dict of them, of one environment or a batch.
            action_mask: Boolean ``[actions]`` or ``[batch, actions]``, for a policy that reads the
                mask an environment gives beside its observation.
            state: Is not read: it is for the policies of several agents.

        Raises:
            ConfigError: If something that the policy reads is missing, or has another shape.
        """
        taken = {part.key: part.take(observation, action_mask) for part in self.observations}
        batched = one_size(taken)

        def answer(outputs: Sequence[Tensor]) -> Any:
            actions = self.action.convert(outputs[0])
            return actions if batched else self.action.single(actions)

        return [tensor for tensor, _ in taken.values()], answer

    @property
    def reads(self) -> str:
        """What it reads, for people."""
        return ", ".join(map(str, self.observations))

    @property
    def acts(self) -> str:
        """What it gives, for people."""
        return str(self.action)


def one_size(taken: Mapping[str, tuple[Tensor, bool]]) -> bool:
    """Whether all parts are batches, which have to be of one size; else each is a single one.

    Raises:
        ConfigError: If they differ.
    """
    sizes = {name: len(tensor) if batched else None for name, (tensor, batched) in taken.items()}
    if len(set(sizes.values())) > 1:
        told = [f"{name} is {_many(size)}" for name, size in sizes.items()]
        raise ConfigError(f"the parts of the observation differ: {', '.join(told)}.")
    return None not in sizes.values()


def _many(size: int | None) -> str:
    return "a single one" if size is None else f"a batch of {size}"
