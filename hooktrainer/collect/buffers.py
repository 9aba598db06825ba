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
from tensordict import NestedKey, TensorDict, unravel_key
from torch.utils._pytree import tree_map_only

from ..base.space_parts import Leaf
from ..base.tensordicts import tensordict_of
from ..errors import ConfigError
from .spaces import Array

CPU = torch.device("cpu")
_CONTIGUOUS = torch.contiguous_format
Inputs = Mapping[NestedKey, Sequence[torch.Tensor]]
"""Inputs of policies: by key of a batch, for each step a tensor ``[num_envs, *shape]``."""


@dataclass(slots=True)
class Row:
    """The outputs of one step of a rollout: views of one row of each of the `Buffers`.

    ``observation`` holds those to act on next, ``entries`` further entries of a batch's ``"next"``.
    """

    observation: tuple[Array, ...]
    reward: Array
    terminated: Array
    truncated: Array
    entries: tuple[Array, ...]


Entries = dict[NestedKey, Any]
Kind = tuple[tuple[int, ...], Any]
"""Shape and type of an array."""
Kinds = Mapping[NestedKey, Kind]
"""By key of a batch's ``"next"``, shape and type of the entry of one environment."""
_SIGNALS: Kinds = {"reward": ((), np.float32), "terminated": ((), bool), "truncated": ((), bool)}


class Buffers:
    """Buffers for the outputs of the environments in a rollout of ``horizon`` steps.

    Args:
        leaves: The arrays of an observation.
        num_envs: Number of environments.
        horizon: Number of steps.
        entries: Further entries of ``"next"``.
        device: Device of the buffers.
        dense: Whether every step writes final observations, which are ``following[key]`` then;
            else those of the episodes that ended are in ``finals``.
        allocate: Makes arrays of these shapes and types, by default of zeros.

    Attributes:
        observation: By key ``[time + 1, num_envs, *shape]``: what the policy acted on, and in the
            last row what it will act on next.
        following: By key ``[time, num_envs, ...]``: ``"reward"``, float32; ``"terminated"`` and
            ``"truncated"``, bool; and further entries of a batch's ``"next"``.
        finals: Environment, step and final observation, leaf by leaf, of each episode that ended.
        inputs: The observations as `Inputs`.
    """

    def __init__(
        self,
        leaves: Sequence[Leaf],
        num_envs: int,
        horizon: int,
        entries: Kinds,
        device: torch.device = CPU,
        dense: bool = False,
        allocate: Callable[[Sequence[Kind]], list[Array]] | None = None,
    ) -> None:
        self.horizon = horizon
        keys = [unravel_key(leaf.key) for leaf in leaves]
        kinds = [((horizon + 1, num_envs, *leaf.shape), leaf.dtype) for leaf in leaves]
        final = {key: (leaf.shape, leaf.dtype) for key, leaf in zip(keys, leaves, strict=True)}
        given = {**(final if dense else {}), **_SIGNALS, **entries}
        kinds += [((horizon, num_envs, *shape), kind) for shape, kind in given.values()]
        arrays = allocate(kinds) if allocate else [np.zeros(*kind) for kind in kinds]
        tensors = [torch.from_numpy(array).to(device) for array in arrays]
        self.observation = dict(zip(keys, tensors, strict=False))
        self.following = dict(zip(given, tensors[len(keys) :], strict=True))
        self.finals: list[tuple[int, int, list[Array]]] = []
        self.inputs: Inputs = {key: rows.unbind(0) for key, rows in self.observation.items()}
        self._before = {key: _env_first(rows[:-1]) for key, rows in self.observation.items()}
        self._after = {key: _env_first(rows[1:]) for key, rows in self.observation.items()}
        self._given: dict[NestedKey, torch.Tensor] = {}
        for key, buffer in self.following.items():
            if key in self.observation:
                self._after[key] = _env_first(buffer)
            else:
                self._given[key] = _env_first(buffer).unsqueeze(-1)

    def add(self, key: NestedKey, like: torch.Tensor) -> None:
        """Make a buffer for a further entry of ``"next"``, each row like the tensor."""
        buffer = self.following[key] = like.new_zeros((self.horizon, *like.shape))
        self._given[key] = _env_first(buffer).unsqueeze(-1)

    def rows(self, envs: slice = slice(None)) -> list[Row]:
        """For each step its row, of all environments or some; the buffers are on the CPU."""
        observation = [tensor.numpy() for tensor in self.observation.values()]
        reward, terminated, truncated, *entries = (x.numpy() for x in self.following.values())
        return [
            Row(
                tuple(array[t + 1, envs] for array in observation),
                reward[t, envs],
                terminated[t, envs],
                truncated[t, envs],
                tuple(array[t, envs] for array in entries),
            )
            for t in range(self.horizon)
        ]

    def observed(self) -> tuple[Entries, Entries]:
        """Fresh tensors of a rollout's observations, before and after each step."""
        before, after = _copies(self._before), _copies(self._after)
        if self.finals:
            arrays = [tensor.numpy() for tensor in after.values()]
        for i, t, values in self.finals:
            for array, value in zip(arrays, values, strict=True):
                array[i, t] = value
        return before, after

    def given(self) -> Entries:
        """Fresh tensors ``[num_envs, time, ..., 1]`` of the environments' other entries."""
        return _copies(self._given)


class OutputBuffers:
    """Buffers for the policy's outputs, ``[time, num_envs, ...]``; allocated at its first output.

    Attributes:
        buffers: By key; empty until it is laid out.
    """

    def __init__(self, num_envs: int, horizon: int) -> None:
        self._num_envs = num_envs
        self._horizon = horizon
        self.buffers: dict[NestedKey, torch.Tensor] = {}
        self._env_first: dict[NestedKey, torch.Tensor] = {}
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
            self._env_first[key] = _env_first(buffer)
            self._rows.append((key, buffer.unbind(0)))

    def write(
        self, t: int, outputs: Mapping[NestedKey, torch.Tensor | Array], envs: slice | None = None
    ) -> None:
        """Copy the outputs of step ``t``, or those of some environments."""
        for key, rows in self._rows:
            row, value = rows[t] if envs is None else rows[t][envs], outputs[key]
            if isinstance(value, torch.Tensor):
                row.copy_(value)
            else:
                row.numpy()[...] = value

    def tensors(self, blank: bool = False) -> dict[NestedKey, torch.Tensor]:
        """Fresh tensors ``[num_envs, time, ...]`` of the rollout; zeros if ``blank``."""
        copies = _copies(self._env_first)
        return {key: copy.zero_() for key, copy in copies.items()} if blank else copies


def as_batch(
    outputs: Mapping[NestedKey, torch.Tensor],
    observed: Entries,
    observed_next: Entries,
    given: Entries,
    device: torch.device | None = None,
) -> TensorDict:
    """Build a batch.

    Args:
        outputs: The policy's outputs, at the root and under ``"next"``.
        observed: Observations at the root.
        observed_next: Observations under ``"next"``.
        given: The environments' other entries under ``"next"``.
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


def _env_first(buffer: torch.Tensor) -> torch.Tensor:
    return buffer.transpose(0, 1)


def _copies(views: Mapping[NestedKey, torch.Tensor]) -> Entries:
    # Not .contiguous(): with one environment or one step it would return the buffer itself.
    return {key: view.clone(memory_format=_CONTIGUOUS) for key, view in views.items()}


def as_arrays(tree: Any) -> Any:
    """The same with arrays in place of tensors; those of the CPU share their memory."""
    if isinstance(tree, torch.Tensor):
        return (tree if tree.is_cpu and not tree.requires_grad else tree.detach().cpu()).numpy()
    return tree if isinstance(tree, np.ndarray) else tree_map_only(torch.Tensor, as_arrays, tree)


def shared_arrays(file: int, kinds: Sequence[Kind]) -> list[Array]:
    """Arrays in the memory of an open file, zeros in a new one.

    Processes that map the same arrays in the same order share memory.
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
