"""`AveragingHook`: the base of hooks with tensors that are equal on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..loop.hook import TrainerHookBase


class AveragingHook(TrainerHookBase):
    """A hook whose tensors are averaged over the processes that train together.

    Attributes:
        average_over_ranks: Replaces tensors by their mean over the ranks; ``None`` with one rank.
    """

    average_over_ranks: Callable[[Sequence[torch.Tensor]], None] | None = None

    def _average(self, tensors: Sequence[torch.Tensor]) -> None:
        if self.average_over_ranks is not None:
            self.average_over_ranks(tensors)
