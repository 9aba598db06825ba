"""Train on a random part of the batch just collected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tensordict import TensorDictBase

from ..base.batches import device_of, mask_of
from ..base.checks import check_count, share_equally
from ..errors import ConfigError
from ..loop.hook import TrainerHookBase

if TYPE_CHECKING:
    from ..loop.loop import Loop


class BatchSubSampler(TrainerHookBase):
    """Draws a random sub-batch of the collected batch for every optimizer step.

    Steps of a batch with one dimension are drawn without replacement. A batch with more has time
    as its last dimension: pieces of trajectories of equal length are drawn with replacement, at
    any position where a whole piece fits.

    Args:
        batch_size: Steps in a sub-batch.
        sub_traj_len: Steps in a piece of a trajectory; 0 or less: whole trajectories.
        min_sub_traj_len: Lower bound of the length of a piece where trajectories, as marked by
            ``("collector", "mask")``, are shorter than ``sub_traj_len``.
    """

    def __init__(self, batch_size: int, sub_traj_len: int = 0, min_sub_traj_len: int = 0) -> None:
        check_count("batch_size", batch_size)
        self.batch_size = batch_size
        self.sub_traj_len = sub_traj_len
        self.min_sub_traj_len = min_sub_traj_len

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the sub-batch.

        Args:
            batch: ``[n]`` or ``[..., time]``.

        Returns:
            ``[min(batch_size, n)]``, or ``[batch_size // length, length]`` for pieces.

        Raises:
            ConfigError: If a piece is longer than the batch's time or than ``batch_size``.
        """
        if batch.ndim == 1:
            return batch[torch.randperm(batch.shape[0], device=device_of(batch))[: self.batch_size]]
        batch = batch.reshape(-1, batch.shape[-1])
        time, mask, device = batch.shape[1], mask_of(batch), device_of(batch)
        valid = None if mask is None else mask.sum(-1)
        length = self._piece_length(time, time if valid is None else int(valid.min()))
        number, room = (self.batch_size // length,), time - length + 1
        if valid is None:
            rows = torch.randint(len(batch), number, device=device)
        else:
            candidates = (valid >= length).nonzero().squeeze(-1)
            if not len(candidates):
                raise ConfigError(
                    f"BatchSubSampler: no trajectory of the batch has {length} valid steps "
                    f"(min_sub_traj_len={self.min_sub_traj_len}); lower min_sub_traj_len."
                )
            rows = candidates[torch.randint(len(candidates), number, device=device)]
            room = valid[rows] - length + 1  # positions at which a whole piece fits
        starts = (torch.rand(rows.shape, device=device) * room).long()
        return batch[rows.unsqueeze(-1), starts.unsqueeze(-1) + torch.arange(length, device=device)]

    def _piece_length(self, time: int, shortest: int) -> int:
        """Steps of a piece of trajectories of up to ``time`` steps, the shortest of so many."""
        length = self.sub_traj_len if self.sub_traj_len > 0 else time
        if length > time:
            raise ConfigError(
                f"BatchSubSampler: sub_traj_len={length} is longer than the batch's {time} steps; "
                "pass a smaller one, or collect longer batches."
            )
        length = max(self.min_sub_traj_len, min(length, shortest), 1)
        if length > self.batch_size:
            raise ConfigError(
                f"BatchSubSampler: batch_size={self.batch_size} holds no piece of {length} steps; "
                "it counts steps, so pass a multiple of the piece's length."
            )
        return length

    def shard(self, rank: int, world_size: int) -> None:
        """Divide the sub-batches among the processes that train together."""
        self.batch_size = share_equally(self.batch_size, world_size, "BatchSubSampler: batch_size")

    def register(self, trainer: Loop, name: str = "batch_subsampler") -> None:
        """Register at ``process_optim_batch``."""
        trainer.register_module(name, self)
        trainer.register_op("process_optim_batch", self)
