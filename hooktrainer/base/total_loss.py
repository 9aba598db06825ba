"""Which entries of what a loss module returns are minimized, and their sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase


def is_loss(key: Any) -> bool:
    """Whether an entry is a loss, by its name."""
    return isinstance(key, str) and key.startswith("loss")


def total_loss(
    losses: TensorDictBase | Mapping[Any, torch.Tensor], components: Sequence[str] | None
) -> torch.Tensor | None:
    """The sum that an optimizer minimizes; ``None`` if a loss is missing.

    Args:
        losses: What the loss module returned.
        components: The keys of the losses; ``None`` for all that begin with ``"loss"``.
    """
    total: torch.Tensor | None = None
    if components is None:
        for key, loss in losses.items():
            if is_loss(key):
                total = loss if total is None else total + loss
        return total
    for key in components:
        loss = losses.get(key, None)
        if loss is None:
            return None
        total = loss if total is None else total + loss
    return total
