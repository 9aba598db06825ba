"""Collectors of TorchRL that write into a replay buffer, and yield nothing.

Hooks are passed what was written, read back from the buffer, so that none has to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDictBase

from ..errors import ConfigError


def batches_of(collector: Any) -> Iterator[Any]:
    """The batches of any collector.

    Of one that yields ``None``, they are the entries that it has written into its replay buffer
    meanwhile, the oldest first: ``[entries, ...]``, a copy.

    Raises:
        ConfigError: If the entries cannot be told from others in the buffer.
    """
    buffer = getattr(collector, "replay_buffer", None)
    return iter(collector) if buffer is None else _written(collector, buffer)


def writes_into(collector: Any, buffer: Any) -> bool:
    """Whether ``collector`` itself stores what it collects in ``buffer``."""
    return buffer is not None and getattr(collector, "replay_buffer", None) is buffer


def _written(collector: Any, buffer: Any) -> Iterator[Any]:
    seen = int(buffer.write_count)
    for batch in collector:
        count = int(buffer.write_count)
        yield _last(buffer, count - seen) if batch is None else batch
        seen = count


def _last(buffer: Any, number: int) -> TensorDictBase:
    """The last ``number`` entries that were written."""
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
