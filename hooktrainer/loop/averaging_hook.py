"""`AveragingHook`: a hook with numbers that all processes which train together have to share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .hook import TrainerHookBase


class AveragingHook(TrainerHookBase):
    """A hook with tensors of its own that are to be the same on every rank.

    Attributes:
        average_over_ranks: Replaces tensors by their mean over the processes that train together;
            ``None`` where there is one.
    """

    average_over_ranks: Callable[[Sequence[torch.Tensor]], None] | None = None

    def _average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace tensors by their mean over the ranks."""
        if self.average_over_ranks is not None:
            self.average_over_ranks(tensors)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"average_over_ranks": None}
