"""Shuffle a batch once per epoch and train on it piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NestedKey, TensorDictBase

from ..checks import check_count
from ..errors import HookError
from ..hook import TrainerHookBase

if TYPE_CHECKING:
    from ..trainer import Trainer


class MiniBatches(TrainerHookBase):
    """Splits the collected batch into shuffled mini-batches, every step once per epoch.

    Use it with ``optim_steps_per_batch=None``: when the mini-batches run out, the epoch ends, and
    the next one shuffles anew.

    Args:
        batch_size: Steps in a mini-batch. The last one of an epoch is smaller if the batch is no
            multiple of it.
        keys: Keys that the loss reads; the others are not copied. ``None`` for all.
    """

    def __init__(self, batch_size: int, keys: Sequence[NestedKey] | None = None) -> None:
        check_count("batch_size", batch_size)
        self.batch_size = batch_size
        self.keys = keys
        self._trainer: Trainer | None = None
        self._epoch: tuple[int, int] | None = None
        self._pieces: Iterator[TensorDictBase] = iter(())

    def __call__(self, batch: TensorDictBase) -> TensorDictBase | None:
        """Return the next mini-batch.

        Args:
            batch: Any shape.

        Returns:
            ``[batch_size]``; ``None`` at the end of an epoch.
        """
        if self._trainer is None:
            raise HookError(
                "MiniBatches was not registered with its own register(trainer), so it cannot see "
                "where an epoch begins: call MiniBatches(...).register(trainer)."
            )
        epoch = (self._trainer.progress.batches, self._trainer.epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            flat = (batch if self.keys is None else batch.select(*self.keys)).reshape(-1)
            order = torch.randperm(flat.shape[0], device=flat.device)
            self._pieces = iter(flat[order].split(self.batch_size))
        return next(self._pieces, None)

    def register(self, trainer: Trainer, name: str = "mini_batches") -> None:
        """Register at ``process_optim_batch``."""
        self._trainer = trainer
        trainer.register_module(name, self)
        trainer.register_op("process_optim_batch", self)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_epoch": None, "_pieces": iter(())}
