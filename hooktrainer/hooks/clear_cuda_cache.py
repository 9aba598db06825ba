"""`ClearCudaCache`: frees unused CUDA memory at an interval."""

from __future__ import annotations

import torch

from ..base.checks import check_count
from ..loop.hook import TrainerHookBase


class ClearCudaCache(TrainerHookBase):
    """Calls `torch.cuda.empty_cache` before the optimizer steps of every ``interval``-th batch.

    Args:
        interval: Batches between two calls.
    """

    at = "pre_optim_steps"
    saved_attributes = ("count",)

    def __init__(self, interval: int) -> None:
        check_count("interval", interval)
        self.interval = interval
        self.count = 0  # not a cadence: as in TorchRL, it also works with register_op

    def __call__(self) -> None:
        """Count the batch and clear the cache if due."""
        self.count += 1
        if self.count % self.interval == 0:
            torch.cuda.empty_cache()
