"""`AverageWeights`: averages of weights over the run, exponential (EMA) or equal (SWA)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ..base.checks import check_count, check_fraction
from ..base.tensordicts import is_sharded
from ..errors import ConfigError
from ..loop.cadence import Every
from ..loop.hook import LATE, TrainerHookBase


class AverageWeights(TrainerHookBase):
    """Averages the weights of a module over the run, by `torch.optim.swa_utils.AveragedModel`.

    Buffers, such as the statistics of batch normalization, are those of the module.

    Args:
        module: The module.
        decay: Decay of an exponential moving average (EMA); ``None`` for the mean of all (SWA).
        every: When to add the weights, at the end of a batch; by default after each optimizer step.
        start: Frames, or samples, before which nothing is added.

    Attributes:
        averaged: The `AveragedModel`; ``averaged.module`` has the averaged weights, from the first
            step on.

    Raises:
        ConfigError: If ``decay`` is not between 0 and 1, or the module is sharded.
    """

    priority = LATE  # with the weights as other hooks leave them
    saved_attributes = ("averaged",)

    def __init__(
        self,
        module: nn.Module,
        decay: float | None = 0.999,
        *,
        every: Every | None = None,
        start: int = 0,
    ) -> None:
        check_count("start", start, least=0)
        if is_sharded(module):
            raise ConfigError(
                "AverageWeights copies the module, and one that fully_shard divided among "
                "processes cannot be copied: leave one of the two out."
            )
        average = None if decay is None else partial(_ema, check_fraction("decay", decay))
        self.module = module
        self.averaged = AveragedModel(module, multi_avg_fn=average)
        self.every = every
        self.start = start
        self.at = "post_optim" if every is None else "post_steps"

    def __call__(self) -> None:
        """Add the present weights."""
        if self.trainer.progress.frames >= self.start:
            self.averaged.update_parameters(self.module)

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        """Give the module the averaged weights in the block, if there are any."""
        live = list(chain(self.module.parameters(), self.module.buffers()))
        if not int(self.averaged.n_averaged):
            yield self.module
            return
        mean = chain(self.averaged.module.parameters(), self.averaged.module.buffers())
        kept = [tensor.detach().clone() for tensor in live]
        try:
            _copy(mean, live)
            yield self.module
        finally:
            _copy(kept, live)


def _ema(decay: float, *args: Any) -> None:
    """Torch's exponential moving average, as a function that can be pickled."""
    get_ema_multi_avg_fn(decay)(*args)  # type: ignore[no-untyped-call]


@torch.no_grad()
def _copy(values: Any, tensors: Any) -> None:
    for value, tensor in zip(values, tensors, strict=True):
        tensor.copy_(value)
