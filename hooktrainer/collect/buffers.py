"""The preallocated memory of a rollout, and the tensors a batch is made of.

While stepping, everything lies time first, ``[time, num_envs, ...]``, so that a step writes one
contiguous row of each buffer. The rows are views made once. A finished rollout is copied, one copy
a key, to fresh tensors ``[num_envs, time, ...]`` that belong to the batch alone.
"""

from __future__ import annotations

import itertools
import math
import mmap
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike
from tensordict import NestedKey, TensorDict, unravel_key

from ..base.space_parts import Leaf
from ..base.tensordicts import tensordict_of
from ..errors import ConfigError
from .spaces import Array

Kinds = Sequence[tuple[tuple[int, ...], Any]]
"""Shape and type of each of several arrays."""


Inputs = Mapping[NestedKey, Sequence[torch.Tensor]]
"""Inputs of policies: by key of a batch, for each step a tensor ``[num_envs, *shape]``."""


@dataclass(slots=True)
class Row:
    """The outputs of step ``index`` of a rollout: views of one row of each of the `StepBuffers`.

    ``observation`` holds those to act on next.
    """

    index: int
    observation: tuple[Array, ...]
    reward: Array
    terminated: Array
    truncated: Array
    info: tuple[Array, ...] = ()


class StepBuffers:
    """Buffers for the outputs of the environments in a rollout of ``horizon`` steps.

    Attributes:
        observation: For each leaf ``[time + 1, num_envs, *shape]``: what the policy acted on, and
            in the last row what it will act on next.
        reward: float32, ``[time, num_envs]``.
        terminated: bool, ``[time, num_envs]``.
        truncated: bool, ``[time, num_envs]``.
        episode_reward: float64, ``[time, num_envs]``: sum of the episode's rewards so far.
        step_count: int64, ``[time, num_envs]``: steps of the episode so far.
        info: For each of the info keys float32, ``[time, num_envs]``.
        rows: For each step its `Row`.
        inputs: The observations as `Inputs`.
    """

    def __init__(
        self,
        leaves: Sequence[Leaf],
        num_envs: int,
        horizon: int,
        infos: int = 0,
        allocate: Callable[[Kinds], list[Array]] | None = None,
    ) -> None:
        signals = (np.float32, bool, bool, np.float64, np.int64, *[np.float32] * infos)
        kinds: Kinds = [
            *(((horizon + 1, num_envs, *leaf.shape), leaf.dtype) for leaf in leaves),
            *(((horizon, num_envs), kind) for kind in signals),
        ]
        arrays: list[Array] = allocate(kinds) if allocate else [np.zeros(*kind) for kind in kinds]
        number = len(leaves)
        self.observation = tuple(arrays[:number])
        self.reward, self.terminated, self.truncated = arrays[number : number + 3]
        self.episode_reward, self.step_count, *info = arrays[number + 3 :]
        self.info = tuple(info)
        self.rows = self.rows_of(slice(None))
        self.inputs: Inputs = {
            unravel_key(leaf.key): torch.from_numpy(array).unbind(0)
            for leaf, array in zip(leaves, self.observation, strict=True)
        }

    def rows_of(self, envs: slice) -> list[Row]:
        return [
            Row(
                t,
                tuple(array[t + 1, envs] for array in self.observation),
                self.reward[t, envs],
                self.terminated[t, envs],
                self.truncated[t, envs],
                tuple(array[t, envs] for array in self.info),
            )
            for t in range(len(self.reward))
        ]


class OutputBuffers:
    """Buffers for the policy's outputs, ``[time, num_envs, ...]``; allocated at its first output.

    Attributes:
        buffers: By key; empty until it is laid out.
    """

    def __init__(self, num_envs: int, horizon: int) -> None:
        self._num_envs = num_envs
        self._horizon = horizon
        self.buffers: dict[NestedKey, torch.Tensor] = {}
        self._rows: list[tuple[NestedKey, tuple[torch.Tensor, ...]]] = []

    def allocate(self, outputs: Mapping[NestedKey, torch.Tensor | Array]) -> None:
        """Make a buffer for each output like the one given."""
        for key, value in outputs.items():
            shape = tuple(value.shape)
            if shape[:1] != (self._num_envs,):
                raise ConfigError(
                    f"The policy's output {key!r} has shape {list(shape)}: its first dimension "
                    f"has to be the number of environments, {self._num_envs}."
                )
            if not isinstance(value, torch.Tensor):
                value = torch.from_numpy(np.zeros((), value.dtype))
            self.buffers[key] = buffer = value.new_zeros((self._horizon, *shape))
            self._rows.append((key, buffer.unbind(0)))

    def write(
        self,
        t: int,
        outputs: Mapping[NestedKey, torch.Tensor | Array],
        envs: slice | None = None,
    ) -> None:
        """Copy the outputs of step ``t``, or those of some environments."""
        for key, rows in self._rows:
            row, value = rows[t] if envs is None else rows[t][envs], outputs[key]
            if isinstance(value, torch.Tensor):
                row.copy_(value)
            else:
                row.numpy()[...] = value

    def rows(self, span: slice) -> dict[NestedKey, torch.Tensor]:
        return {key: buffer[span] for key, buffer in self.buffers.items()}

    def tensors(self, blank: bool = False) -> dict[NestedKey, torch.Tensor]:
        """Fresh tensors ``[num_envs, time, ...]`` of the rollout; zeros if ``blank``."""
        return {key: env_first(buffer, blank) for key, buffer in self.buffers.items()}


Entries = dict[NestedKey, Any]


def as_batch(
    outputs: Mapping[NestedKey, torch.Tensor],
    observed: Entries,
    observed_next: Entries,
    given: Entries,
    device: torch.device | None = None,
) -> TensorDict:
    """Build a batch.

    Args:
        outputs: What the policy wrote, at the root and under ``"next"``.
        observed: Observations at the root.
        observed_next: Observations under ``"next"``.
        given: What else the environments gave.
        device: That of all entries, if the batch is to have it as an attribute.
    """
    root: Entries = {}
    following: Entries = {}
    for key, tensor in outputs.items():
        if isinstance(key, tuple) and key[0] == "next":
            following[unravel_key(key[1:])] = tensor
        else:
            root[key] = tensor
    root |= observed
    following |= observed_next
    if taken := sorted(map(str, following.keys() & given.keys())):
        raise ConfigError(
            f"The policy writes ('next', {taken[0]!r}), and the environments give it: let the "
            "policy, or, for info_keys, the environment or a wrapper around it, call it otherwise."
        )
    following |= given
    done = following["done"]
    for name in ("done", "terminated", "truncated"):
        root[name] = torch.zeros_like(done)
    size = done.shape[:2]
    root["next"] = tensordict_of(following, size, device)
    return tensordict_of(root, size, device)


def env_first(buffer: torch.Tensor, blank: bool = False) -> torch.Tensor:
    """A fresh contiguous copy ``[num_envs, time, ...]`` of ``[time, num_envs, ...]``."""
    swapped = buffer.transpose(0, 1)
    if blank:
        return swapped.new_zeros(swapped.shape)
    # Not .contiguous(): with one environment or one step it would return the buffer itself.
    return swapped.clone(memory_format=torch.contiguous_format)


def env_first_array(array: Array, dtype: DTypeLike | None = None) -> Array:
    """The same for a NumPy array, which is quicker for small ones; of another type if asked."""
    return np.array(array.swapaxes(0, 1), dtype, order="C")


def shared_arrays(file: int, kinds: Kinds) -> list[Array]:
    """Arrays in the memory of an open file, zeros in a new one.

    Processes that ask for the same arrays in the same order get the same memory.
    """
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for shape, kind in kinds]
    starts = [0, *itertools.accumulate(-(-size // 64) * 64 for size in sizes)]
    os.ftruncate(file, starts[-1])
    memory = mmap.mmap(file, starts[-1])
    pairs = zip(kinds, starts, strict=False)
    return [np.ndarray(shape, kind, memory, start) for (shape, kind), start in pairs]


def unnamed_file() -> int:
    """Open a file of memory that has no name: nothing is left of it however its processes end."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("hooktrainer", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
