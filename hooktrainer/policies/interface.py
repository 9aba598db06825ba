"""A policy's observations and actions as plain data, so that loading needs no Gymnasium."""

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
from .actions import DTYPES, Action, JointAction, Path, check_start, decode, decode_action, single

Array = npt.NDArray[Any]
Answer = Callable[[Sequence[Tensor]], Any]
MASK = "action_mask"

MOST_NUMBERS = 1 << 30
"""Largest number of elements of an observation."""


@dataclasses.dataclass(frozen=True)
class Observation:
    """One array that a policy reads.

    Attributes:
        key: The policy's name for it, with dots between the parts.
        path: The keys, or tuple indices, that lead to it in the observation.
        shape: Its shape for one environment.
        dtype: The type it is converted to.
        start: Subtracted, so that discrete values count from 0.
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
        """Return an empty tensor ``[1, *agents, *shape]`` on the device ``meta``."""
        shape = (*agents, *self.shape)
        if math.prod(shape) > MOST_NUMBERS:
            raise ValueError(f"{self.key} has {math.prod(shape):,} numbers")
        return torch.empty((1, *shape), dtype=self.torch_dtype, device="meta")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The type it is converted to, in PyTorch."""
        return torch.from_numpy(np.empty(0, self.dtype)).dtype

    @property
    def is_mask(self) -> bool:
        """Whether it is the action mask, which is not part of the observation."""
        return self.key == MASK and not self.path

    def take(
        self, observation: Any, action_mask: Any = None, whose: str = ""
    ) -> tuple[Tensor, bool]:
        """Find it in an observation, or take the mask; see `convert`. ``whose`` is for messages."""
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
        """Return the tensor ``[batch, *shape]``, and whether ``value`` was a batch."""
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
    """Everything that a policy reads, in the order of its inputs, and its action."""

    observations: tuple[Observation, ...]
    action: Action | JointAction

    def encode(self) -> dict[str, Any]:
        """Return plain data, which `decode_interface` reads."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Interface:
        """Return what `encode` wrote."""
        return cls(
            tuple(decode(Observation, part) for part in data["observations"]),
            decode_action(data["action"]),
        )

    def examples(self) -> list[Tensor]:
        """Empty examples of the policy's inputs."""
        return [part.example() for part in self.observations]

    def check(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Check a policy's outputs for one observation; return those after the action."""
        if not outputs[0].dim() or len(outputs[0]) != 1:
            raise ValueError("its program does not return an action for each observation")
        return list(outputs[1:])

    reads_state = False  # of a whole, as those of several agents may

    def read(
        self, observation: Any, action_mask: Any = None, state: Any = None
    ) -> tuple[list[Tensor], Answer]:
        """Return the policy's inputs, ``[batch, ...]``, and a function from its outputs to actions.

        Args:
            observation: An array, or a dict of them, of one environment or a batch.
            action_mask: Boolean ``[actions]`` or ``[batch, actions]``, if the policy reads a mask.
            state: Not used; for several agents.
        """
        taken = {part.key: part.take(observation, action_mask) for part in self.observations}
        batched = one_size(taken)

        def answer(outputs: Sequence[Tensor]) -> Any:
            actions = self.action.convert(outputs[0])
            return actions if batched else single(actions)

        return [tensor for tensor, _ in taken.values()], answer

    @property
    def reads(self) -> str:
        """The inputs, for people."""
        return ", ".join(map(str, self.observations))

    @property
    def acts(self) -> str:
        """The action, for people."""
        return str(self.action)


def one_size(taken: Mapping[str, tuple[Tensor, bool]]) -> bool:
    """Whether all parts are batches, which must have one size; otherwise all are single."""
    sizes = {
        name: f"a batch of {len(tensor)}" if batched else "a single one"
        for name, (tensor, batched) in taken.items()
    }
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} is {size}" for name, size in sizes.items())
        raise ConfigError(f"the parts of the observation differ: {told}.")
    return "a single one" not in sizes.values()
