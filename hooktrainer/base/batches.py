"""Which steps of a batch are data: those that its collector did not add as padding.

Collectors that split their data into trajectories pad them in time to one length, and mark what is
no padding in ``("collector", "mask")``, a boolean tensor of the batch's shape. Everything that
counts, stores or averages steps reads it here.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from tensordict import NestedKey, TensorDictBase

Batch = TypeVar("Batch", bound=TensorDictBase)


def device_of(batch: TensorDictBase) -> torch.device:
    """Where a batch is: not every collector says it, its tensors do."""
    device: torch.device | None = batch.device
    return next(iter(batch.values(True, True))).device if device is None else device


def mask_of(batch: TensorDictBase) -> torch.Tensor | None:
    """Which steps are data, bool ``[*batch]``; ``None`` if all are."""
    if "collector" not in batch.keys():  # noqa: SIM118 (a look that is quicker than get)
        return None
    mask: torch.Tensor | None = batch.get(("collector", "mask"), None)
    return mask


def count_valid(batch: TensorDictBase) -> int:
    """Number of steps that are data."""
    mask = mask_of(batch)
    return batch.numel() if mask is None else int(mask.sum())


def valid(batch: TensorDictBase, key: NestedKey) -> torch.Tensor:
    """One entry of the steps that are data.

    Returns:
        ``[steps, ...]``; ``[*batch, ...]``, the entry itself, if all are.

    Raises:
        KeyError: If there is no such entry.
    """
    mask, values = mask_of(batch), batch[key]
    return values if mask is None else values[mask]


def valid_steps(batch: Batch) -> Batch:
    """The steps that are data, ``[steps]``; ``batch`` itself if all are."""
    mask = mask_of(batch)
    return batch if mask is None else batch[mask]
