"""Collectors of TorchRL that write into a replay buffer, and yield nothing.

Their batches are what was written, read back from the buffer, so that no hook has to know.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from ..errors import ConfigError


def last(buffer: Any, number: int) -> TensorDictBase:
    """The last ``number`` entries that were written, the oldest first: ``[number, ...]``, a copy.

    Raises:
        ConfigError: If they cannot be told from others in the buffer.
    """
    from torchrl.data import RoundRobinWriter

    writer, length = buffer.writer, _length(buffer)
    if not isinstance(writer, RoundRobinWriter):
        raise ConfigError(
            f"the collector writes into a replay buffer whose {type(writer).__name__} does not "
            "keep the order of what is written. Let the collector yield its batches, and register "
            "a ReplayBufferTrainer."
        )
    if not 0 < number <= length:
        raise ConfigError(
            f"the collector wrote {number} entries into a replay buffer of {length} for one batch: "
            "give the buffer room for a batch, and let nobody else write into it."
        )
    index = torch.arange(writer._cursor - number, writer._cursor) % length
    return buffer.storage[index].clone()


def _length(buffer: Any) -> int:
    """Number of entries in the buffer, along the first dimension."""
    storage = buffer.storage
    return len(storage) if storage.ndim == 1 else int(storage.shape[0])
