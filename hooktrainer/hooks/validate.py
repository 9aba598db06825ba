"""`Validate`: the mean losses and metrics on data that is not trained on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import nn

from ..base.tensordicts import count_valid, total_loss
from ..data import DataCollector
from ..errors import ConfigError
from ..loop.cadence import Every
from ..loop.loop import Loop
from ..loop.metrics import Latest
from ..networks.layers import evaluation_mode
from ..store.rng import undisturbed
from .average_weights import AverageWeights
from .averaging import AveragingHook


@dataclass(eq=False, repr=False)
class Validate(AveragingHook):
    """Computes losses and metrics on a validation set, and logs their means over its samples.

    Everything that the loss module returns is averaged: ``loss`` is logged as ``val/loss``,
    ``accuracy`` as ``val/accuracy``. If no entry is called ``loss``, ``val/loss`` is the sum that
    is minimized. Values are scalars, the means of a batch, or have one row for each sample. Means
    are weighted by the samples of batches.

    Batches are moved to the device of the trainer's collector, if it has one.

    Modules are in evaluation mode meanwhile, without gradients. Training draws the same random
    numbers with and without validation. A validation closes the log window. Of several processes
    each computes all of it, so that schedulers and stops by its metrics agree.

    Args:
        data: A data set, or a `torch.utils.data.DataLoader`; or a `DataCollector` of one epoch.
        metrics: Further metrics by name: functions of a batch, as the loss module leaves it.
        every: When to validate, by default after each epoch; the end of the run always is.
        batch_size: Samples in a batch, for a data set.
        names: As for `DataCollector`.
        loss_module: Computes the losses; by default the trainer's.
        weights: Validates with these averaged weights in place of the present ones.
        group: Group of the metrics.
        log_pbar: Whether ``<group>/loss`` is shown in the progress bar.

    Attributes:
        validated_at: Frames at the last validation; -1 before the first.

    Raises:
        ConfigError: If the data has no batch, or is a `DataCollector` of several epochs.
    """

    at = "post_steps_log"
    saved_attributes = ("validated_at",)
    phase = "evaluate"

    data: Any
    metrics: Mapping[str, Callable[[TensorDictBase], Any]] | None = None
    _: KW_ONLY
    every: Every | None = None
    batch_size: int | None = None
    names: Any = None
    loss_module: Callable[[TensorDictBase], TensorDictBase] | None = None
    weights: AverageWeights | None = None
    group: str = "val"
    log_pbar: bool = True

    def __post_init__(self) -> None:
        self.every = self.every or Every(epochs=1)
        collector = self.data
        if not isinstance(collector, DataCollector):
            shuffle = None if self.batch_size is None else False
            collector = DataCollector(
                self.data, self.batch_size, shuffle=shuffle, names=self.names, epochs=1
            )
        if collector.epochs != 1:
            raise ConfigError(
                f"Validate: the DataCollector has epochs={collector.epochs}: pass epochs=1."
            )
        self._collector = collector
        self.validated_at = -1

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Validate and return the metrics."""
        self.validated_at = self.trainer.progress.frames
        self.trainer.request_log()
        return self.validate()

    def validate(self) -> dict[str, Any]:
        """Compute the means over the data."""
        sums: defaultdict[str, Any] = defaultdict(float)
        samples = 0
        loss_module = self.loss_module or self.trainer.loss_module
        averaged = nullcontext() if self.weights is None else self.weights.applied()
        modules = (loss_module, *(self.metrics or {}).values())
        with undisturbed(), averaged, evaluating(*modules):
            self._collector.set_seed(0)
            device = self.trainer.source.device
            for batch in self._collector:
                batch = batch if device is None else batch.to(device)
                number = count_valid(batch)
                samples += number
                for name, value in self._values(loss_module, batch).items():
                    mean = torch.as_tensor(value, dtype=torch.float64).mean()
                    sums[name] = sums[name] + mean * number
        for value in sums.values():
            value.div_(samples)
        self._average(list(sums.values()))  # equal to the last bit
        means = {f"{self.group}/{name}": Latest(value) for name, value in sums.items()}
        return {**means, "log_pbar": [f"{self.group}/loss"] if self.log_pbar else False}

    def _values(self, loss_module: Any, batch: TensorDictBase) -> dict[str, Any]:
        losses = self.trainer.precision.around(loss_module)(batch)
        values: dict[str, Any] = dict(losses.items())
        if "loss" not in values:
            values["loss"] = total_loss(losses, None)
        return values | {name: metric(batch) for name, metric in (self.metrics or {}).items()}

    def on_train_end(self, trainer: Loop) -> None:
        """Validate at the end, unless the last validation was there already."""
        if self.validated_at != trainer.progress.frames:
            self.validated_at = trainer.progress.frames
            trainer.log(self.validate())

    def close(self) -> None:
        """Close the data."""
        self._collector.shutdown()


@contextmanager
def evaluating(*things: Any) -> Iterator[None]:
    """In the block, modules are in evaluation mode, and nothing has gradients."""
    parts = [part for one in things if isinstance(one, nn.Module) for part in one.modules()]
    with evaluation_mode(parts), torch.no_grad():
        yield
