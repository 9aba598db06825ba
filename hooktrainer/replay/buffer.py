"""`ReplayBuffer`, fast for one gradient step per environment step, and uniform samplers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import (
    NestedKey,
    TensorDictBase,
    is_leaf_nontensor,
    is_non_tensor,
    unravel_key,
)
from torch import Tensor

from ..base.cores import memory_size
from ..base.tensordicts import entries_of, tensordict_of, valid_steps
from ..errors import ConfigError


class ReplayBuffer:
    """A ring buffer of transitions in preallocated tensors.

    It has the methods of TorchRL's ``TensorDictReplayBuffer`` that training needs, at a fraction of
    its cost per call. Tensors are made once, at the first write; on the CPU a row takes memory once
    it is written.

    Args:
        max_size: Capacity in transitions; then the oldest are overwritten.
        batch_size: Default size of a sample.
        sampler: `RandomSampler` (the default), `SamplerWithoutReplacement` or `PrioritizedSampler`;
            on an accelerator `DevicePrioritizedSampler`.
        priority_key: Entry that `update_tensordict_priority` reads.
        keys: Entries to keep; by default, those of the first batch.
        device: The tensors' device.
        scratch_dir: Directory for memory-mapped files, for buffers larger than memory.
        generator: Random generator, which is saved; by default, torch's global one.

    Examples:
        >>> buffer = ReplayBuffer(max_size=100_000, batch_size=128)
        >>> buffer.extend(batch)
        >>> sample = buffer.sample()
    """

    def __init__(
        self,
        max_size: int,
        *,
        batch_size: int | None = None,
        sampler: RandomSampler | None = None,
        priority_key: NestedKey = "td_error",
        keys: Sequence[NestedKey] | None = None,
        device: torch.device | str = "cpu",
        scratch_dir: str | Path | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        if max_size <= 0:
            raise ConfigError(f"ReplayBuffer: max_size={max_size} must be positive.")
        if scratch_dir is not None and torch.device(device).type != "cpu":
            raise ConfigError(f"ReplayBuffer: scratch_dir needs device='cpu', not {device!r}.")
        self.max_size = max_size
        self.batch_size = batch_size
        self.sampler: Any = RandomSampler() if sampler is None else sampler
        self.sampler._rng = generator
        self.priority_key = priority_key
        self.keys = None if keys is None else [unravel_key(key) for key in keys]
        self.device = torch.device(device)
        self.scratch_dir = scratch_dir
        self.generator = generator
        self.write_count = 0
        self._columns: dict[NestedKey, Any] = {}
        capacity = getattr(self.sampler, "max_size", max_size)
        if capacity < max_size:
            raise ConfigError(
                f"ReplayBuffer: max_size={max_size}, but its {type(self.sampler).__name__} has "
                f"max_capacity={capacity}. Make them equal."
            )

    def __len__(self) -> int:
        return min(self.write_count, self.max_size)

    def __iter__(self) -> Iterator[TensorDictBase]:
        """Yield one pass of `SamplerWithoutReplacement`; infinite batches of other samplers."""
        while True:
            yield self.sample()
            if getattr(self.sampler, "ran_out", False):
                return

    def extend(self, data: TensorDictBase) -> Tensor:
        """Write transitions.

        Args:
            data: ``[*batch]``, written in order without padding; the last ``max_size`` if there are
                more. The first call fixes shapes and dtypes.

        Returns:
            Indices of the written rows, ``[batch]``, int64.

        Raises:
            ConfigError: If an entry of the first batch is no tensor, such as text, or so many rows
                need more memory than the machine has.
            KeyError: If an entry is missing or new; then nothing is written.
        """
        data = valid_steps(data)
        if not self._columns:
            self._allocate(data)
        number = data.numel()
        total = self.write_count + number
        if number > self.max_size:
            data, number = data.reshape(-1)[-self.max_size :], self.max_size
        rows = self._rows(data, number)
        start = (total - number) % self.max_size
        before_end = min(number, self.max_size - start)
        for column, values in rows:
            _write(column[start : start + before_end], values[:before_end])
            if before_end < number:
                _write(column[: number - before_end], values[before_end:])
        self.write_count = total
        index = torch.arange(start, start + number, device=self.device)
        if before_end < number:
            index %= self.max_size
        if hasattr(self.sampler, "mark_update"):
            self.sampler.mark_update(index)
        return index

    def _rows(self, data: TensorDictBase, number: int) -> list[tuple[Any, Any]]:
        """Return each column with its new values, ``[number, ...]``."""
        rows = []
        # Read only the kept entries.
        every = data.items(True, True)
        for key, value in every if self.keys is None else entries_of(data, self._columns).items():
            column = self._columns.get(key)
            if column is not None:
                if isinstance(column, np.ndarray):  # which also reshapes faster
                    value = (value if value.is_cpu else value.cpu()).numpy()
                rows.append((column, value.reshape(number, *column.shape[1:])))
            elif self.keys is None:
                raise KeyError(f"entry {key!r} is new: the first batch did not have it.")
        if len(rows) < len(self._columns):
            present = set(data.keys(True, True))
            raise KeyError(
                f"entries {sorted(map(str, self._columns.keys() - present))} are missing."
            )
        return rows

    def sample(self, batch_size: int | None = None) -> TensorDictBase:
        """Sample a batch, with ``"index"`` and, if prioritized, ``"priority_weight"``.

        Args:
            batch_size: Number of transitions; by default, the buffer's.

        Raises:
            ConfigError: If there is no batch size.
            RuntimeError: If nothing has been written.
        """
        batch_size = batch_size or self.batch_size
        if batch_size is None:
            raise ConfigError("ReplayBuffer.sample: pass batch_size here or to the constructor.")
        if not len(self):
            raise RuntimeError(
                f"cannot draw {batch_size} transitions from an empty buffer: collect some first."
            )
        index, info = self.sampler.sample(self, batch_size)
        index = index.to(self.device)
        entries: dict[NestedKey, Any] = {"index": index}
        for key in self._columns:
            entries[key] = self.read(key, index)
        for name, value in info.items():
            entries[name] = value.to(self.device)
        return tensordict_of(entries, index.shape, self.device)

    def read(self, key: NestedKey, index: Tensor) -> Tensor:
        """Return an entry of the rows ``index``, ``[*batch, ...]``."""
        column = self._columns[key]
        if isinstance(column, np.ndarray):
            # Several times as fast as torch's indexing for the rows of a small batch.
            return torch.from_numpy(column.take(index.numpy(), 0))
        return column[index]

    def update_priority(self, index: Tensor, priority: Tensor | float) -> None:
        """Set priorities; no effect without a prioritized sampler."""
        if hasattr(self.sampler, "update_priority"):
            self.sampler.update_priority(index, priority)

    def update_tensordict_priority(self, data: TensorDictBase) -> None:
        """Set the priorities of a sample from its entry ``priority_key``."""
        self.update_priority(data.get("index"), data.get(self.priority_key))

    def state_dict(self) -> dict[str, Any]:
        """Return the state; its tensors are views of the buffer's, not copies."""
        rows = {key: torch.as_tensor(column[: len(self)]) for key, column in self._columns.items()}
        return {
            "storage": tensordict_of(rows, torch.Size([len(self)]), self.device) if rows else None,
            "write_count": self.write_count,
            "sampler": self.sampler.state_dict(),
            "generator": None if self.generator is None else self.generator.get_state(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ConfigError: If the saved buffer had another size.
        """
        storage, write_count = state_dict["storage"], state_dict["write_count"]
        saved = 0 if storage is None else len(storage)
        if saved > self.max_size or (write_count > saved != self.max_size):
            raise ConfigError(
                f"the state holds {saved} transitions of {write_count} written, which does not fit "
                f"max_size={self.max_size}: build the buffer with the size it was saved with."
            )
        if storage is not None:
            if not self._columns:
                self._allocate(storage)
            for column, values in self._rows(storage, saved):
                _write(column[:saved], values)
        self.write_count = write_count
        self.sampler.load_state_dict(state_dict["sampler"])
        if self.generator is not None:
            self.generator.set_state(state_dict["generator"])

    def _allocate(self, data: TensorDictBase) -> None:
        """Allocate ``max_size`` rows like those of ``data``."""
        row = data.reshape(-1)[0]
        if self.keys is not None:
            row = row.select(*self.keys)
        for key, value in row.items(True, True, is_leaf=is_leaf_nontensor):
            if is_non_tensor(value):
                raise ConfigError(
                    f"ReplayBuffer: the entry {key!r} is {value.tolist()!r:.80}, and it holds "
                    "tensors only. Give the keys to keep with keys=[...], leave it out with "
                    "SelectKeys, or take TorchRL's TensorDictReplayBuffer."
                )
        if self.scratch_dir is not None:
            rows = row.expand(self.max_size).memmap_like(prefix=self.scratch_dir)
        else:
            self._check_memory(row)
            rows = row.apply(self._column, batch_size=[self.max_size], device=self.device)
        self._columns = {key: _quickest(column) for key, column in rows.items(True, True)}

    def _check_memory(self, row: TensorDictBase) -> None:
        """Refuse rows that this machine cannot hold, of which only those written take memory."""
        size = sum(value.nbytes for value in row.values(True, True))
        needed, memory = size * self.max_size, memory_size()
        if self.device.type == "cpu" and needed > memory:
            raise ConfigError(
                f"ReplayBuffer: max_size={self.max_size} transitions of {size:,} bytes need "
                f"{needed / 1e9:.1f} GB, and this machine has {memory / 1e9:.1f}: lower it "
                "(buffer_size of a run), or keep them in files with scratch_dir=."
            )

    def _column(self, row: Tensor) -> Tensor:
        """A tensor of zeros, ``[max_size, *row]``; on the CPU of pages that take no memory yet."""
        shape = (self.max_size, *row.shape)
        if self.device.type != "cpu" or not row.nbytes:
            return torch.zeros(shape, dtype=row.dtype, device=self.device)
        zeros = np.zeros(self.max_size * row.nbytes, np.uint8)
        return torch.from_numpy(zeros).view(row.dtype).view(shape)


def _write(rows: Any, values: Any) -> None:
    """Write rows of a column without a synchronization."""
    if isinstance(rows, np.ndarray):
        rows[...] = values
    else:
        rows.copy_(values, non_blocking=not rows.is_cpu)


def _quickest(column: Tensor) -> Any:
    """Return a column as a NumPy view if possible, which is faster to write and index."""
    return column.numpy() if column.is_cpu and column.dtype is not torch.bfloat16 else column


# -- Uniform samplers.


class RandomSampler:
    """Draws every transition with the same probability, with replacement.

    It is also the base class of the other samplers: it has no priorities and no state.
    """

    _rng: torch.Generator | None = None  # set by the buffer

    def sample(self, storage: Any, batch_size: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Draw indices ``[batch_size]``, and further entries of the batch.

        Raises:
            RuntimeError: If fewer transitions are stored than a batch needs.
        """
        size, device = (batch_size,), self._device(storage)
        return torch.randint(len(storage), size, generator=self._rng, device=device), {}

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""

    def _device(self, storage: Any) -> torch.device | None:
        """Return the device to draw on: the generator's, else the transitions'."""
        return getattr(storage, "device", None) if self._rng is None else self._rng.device


class SamplerWithoutReplacement(RandomSampler):
    """Draws each transition once per pass over the transitions stored when the pass began.

    The last batch of a pass may be smaller. When a pass ends, `ran_out` is true until the next
    draw, which begins another one.
    """

    def __init__(self) -> None:
        self._left = torch.empty(0, dtype=torch.int64)
        self.ran_out = False

    def sample(self, storage: Any, batch_size: int) -> tuple[Tensor, dict[str, Tensor]]:
        if not len(self._left):
            device = self._device(storage)
            self._left = torch.randperm(len(storage), generator=self._rng, device=device)
        index, self._left = self._left[:batch_size], self._left[batch_size:]
        self.ran_out = not len(self._left)
        return index, {}

    def state_dict(self) -> dict[str, Any]:
        """Return the rest of the pass."""
        return {"left": self._left.clone(), "ran_out": self.ran_out}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._left, self.ran_out = state_dict["left"].clone(), state_dict["ran_out"]
