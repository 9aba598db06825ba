"""`DataParallel`: turns a trainer into one of several ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from tensordict import TensorDictBase

from ...base.tensordicts import is_sharded
from ...hooks.optimizer import OptimizerHook
from ...loop.hook import FIRST, LAST, TrainerHookBase
from ...loop.metrics import WindowValue
from ...store.rng import seed_all
from .gradients import (
    AverageGradients,
    full_tensor,
    shard_optimizer_state,
    statistics_of,
    tensors_of,
)
from .rank_state import tree_digest
from .ranks import RankControl, Ranks, RanksError

if TYPE_CHECKING:
    from ...trainer import Trainer


class DataParallel(TrainerHookBase):
    """Makes a trainer one of several ranks that train the same parameters on different data.

    Register it last, before a state is loaded. It

    - gives the collector and every hook that has a method ``shard(rank, world_size)`` this rank's
      share: environments, mini-batches and samples are divided, so that options mean the same with
      any number of ranks;
    - starts with the parameters of rank 0, and different random numbers on each rank;
    - averages the gradients over the ranks, during the backward pass, before they are clipped;
    - sets the attribute ``average_over_ranks`` of hooks that have it, to average their tensors;
    - counts the frames of all ranks, and averages metrics over them when a log window closes;
    - reports the times of rank 0, with what it waits for the others as ``time/ranks``;
    - makes all ranks stop, save and log at the same batch, whichever requested it;
    - removes hooks marked ``rank_zero_only`` from the other ranks, unless parameters are sharded by
      `shard_parameters`: these are gathered for checkpoints, and all ranks evaluate together;
    - compares the ranks' parameters at the end.

    Args:
        ranks: The ranks; closed with the trainer.
    """

    phase = "ranks"

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._frames = 0
        self._statistics: list[torch.Tensor] = []
        self._gradients: list[AverageGradients] = []

    def register(self, trainer: Trainer, name: str = "data_parallel") -> None:
        """Register at the beginning of ``batch_process`` and the end of ``post_steps_log``.

        Raises:
            ConfigError: If the collector or a batch size cannot be shared equally.
        """
        ranks = self._ranks
        trainer.source.shard(ranks.rank, ranks.world_size)
        for hook in trainer.registry.hooks():
            if hook is not trainer.collector and callable(getattr(hook, "shard", None)):
                hook.shard(ranks.rank, ranks.world_size)
        sharded = is_sharded(trainer.loss_module)
        for hook in trainer.registry.hooks():
            # A sharded network can only be called by all ranks together.
            if ranks.rank and getattr(hook, "rank_zero_only", False) and not sharded:
                trainer.registry.discard(hook)
            if hasattr(hook, "average_over_ranks"):
                hook.average_over_ranks = ranks.average
            if isinstance(hook, OptimizerHook):
                waits = hook.is_accumulating
                self._gradients.append(AverageGradients(ranks, hook.optimizer, waits))
                hook.gradient_hooks.append(self._gradients[-1])
                if sharded:
                    shard_optimizer_state(hook.optimizer)
        if isinstance(trainer.loss_module, torch.nn.Module):
            tensors = tensors_of(trainer.loss_module)
            ranks.broadcast_tensors([t for t in tensors if type(t) is torch.Tensor])
            self._statistics = statistics_of(trainer.loss_module)
        if ranks.rank:  # rank 0 has the random numbers of a run with one process
            seed_all([trainer.seed or 0, ranks.rank])
        trainer.metrics.combine = self._combine
        trainer.timing.reports = ranks.rank == 0  # a mean over ranks that wait would not add up
        trainer.control = RankControl(trainer.control, ranks)
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self._begin_batch, priority=FIRST)
        trainer.register_op("post_steps_log", self._end_batch, priority=LAST)

    def on_train_start(self, trainer: Trainer) -> None:
        """Store the frames at which training starts."""
        self._frames = trainer.progress.frames

    def _begin_batch(self, batch: TensorDictBase) -> None:
        """Count the frames of all ranks, and use rank 0's clock."""
        progress = self.trainer.progress
        counts = [progress.frames - self._frames, int(progress.seconds * 1e9)]
        rows = self._ranks.all_gather("the start of a batch", counts)
        progress.frames = self._frames = self._frames + sum(frames for frames, _ in rows)
        progress.seconds = rows[0][1] * 1e-9

    def _end_batch(self, batch: TensorDictBase) -> None:
        control = self.trainer.control
        assert isinstance(control, RankControl)
        control.agree("the end of a batch")
        if self._statistics:  # they are those of rank 0's data
            self._ranks.broadcast_tensors(self._statistics)

    def _combine(self, window: Mapping[str, WindowValue]) -> dict[str, WindowValue]:
        """Add up what the ranks logged: means are over all values of all ranks."""
        together: dict[str, WindowValue] = {}
        for part in self._ranks.all_gather("the end of a log window", dict(window)):
            for name, value in part.items():
                seen = together.get(name)
                together[name] = value if seen is None else seen + value
        return together

    def on_train_end(self, trainer: Trainer) -> None:
        """Compare the ranks' parameters.

        Raises:
            RanksError: If they differ.
        """
        if not isinstance(trainer.loss_module, torch.nn.Module):
            return
        # Copies, since fully_shard cannot free memory that NumPy has seen.
        own = {
            n: full_tensor(p.detach()).clone() for n, p in trainer.loss_module.named_parameters()
        }
        digests = self._ranks.all_gather("the end of the run", tree_digest(own))
        if len(set(digests)) > 1:
            raise RanksError(f"the ranks' parameters differ at the end: {', '.join(digests)}")

    def close(self) -> None:
        """Leave the other ranks."""
        for gradients in self._gradients:
            gradients.close()
        self._ranks.close()
