"""Hooks that cut a batch: mini-batches, random sub-batches, padding, keys."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase

from ..base.checks import check_count, share_equally
from ..base.tensordicts import device_of, mask_of, valid_steps
from ..errors import ConfigError
from ..loop.hook import TrainerHookBase

INDEX = "index"
"""Key of the row indices in a mini-batch that does not hold its rows."""
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class MiniBatches(TrainerHookBase):
    """Splits the collected batch into shuffled mini-batches; each step occurs once per epoch.

    Use it with ``optim_steps_per_batch=None``: the epoch ends with the last mini-batch, and the
    next epoch shuffles again.

    Args:
        batch_size: Steps in a mini-batch, without padding. The last one of an epoch may be smaller,
            but a single leftover step joins the one before, since it has no standard deviation.
        keys: Keys that the loss reads, to copy only these; ``None`` for all.
        sequences: ``True`` to split along the first dimension only, for networks with a memory; or
            the length of sequences to cut. ``batch_size`` then counts environments or sequences.

    Attributes:
        gathers: Whether mini-batches hold their rows. If not, they hold only the rows' indices, as
            ``"index"``, until `fill` is called.
        rows: The rows that the indices refer to.
    """

    at = "process_optim_batch"

    batch_size: int
    keys: Sequence[NestedKey] | None = None
    _: KW_ONLY
    sequences: bool | int = False

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        if not isinstance(self.sequences, bool):
            check_count("sequences", self.sequences)
        self.gathers = True
        self.rows: Any = None
        self._warned = False
        self._epoch: tuple[int, int] | None = None
        self._pieces: deque[TensorDictBase] = deque()

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the next mini-batch, ``[batch_size]``, or ``[batch_size, time]`` of sequences.

        Args:
            batch: Any shape.

        Raises:
            StopIteration: At the end of an epoch.
        """
        number = self.trainer.progress.batches
        epoch = (number, self.trainer.epoch)
        if epoch != self._epoch:
            if self.rows is None or self._epoch is None or self._epoch[0] != number:
                self.rows = self._rows_of(batch)
            self._epoch = epoch
            order = torch.randperm(self.rows.shape[0], device=device_of(self.rows))
            pieces = self.rows[order] if self.gathers else TensorDict({INDEX: order}, order.shape)
            sizes = [self.batch_size] * (len(order) // self.batch_size)
            rest = len(order) % self.batch_size
            if rest == 1 and sizes:
                sizes[-1] += 1
            elif rest:
                sizes.append(rest)
            self._pieces = deque(pieces.split(sizes))
            if self.gathers:
                self.rows = None  # the pieces are copies
        if not self._pieces:
            raise StopIteration
        return self._pieces.popleft()

    def _rows_of(self, batch: TensorDictBase) -> TensorDictBase:
        rows = batch if self.keys is None else batch.select(*self.keys)
        if self.sequences is False:
            mask = mask_of(batch)
            rows = rows.reshape(-1) if mask is None else rows[mask]
        elif self.sequences is not True:
            length = self.sequences
            if batch.ndim != 2 or batch.shape[1] % length:
                raise ConfigError(
                    f"MiniBatches(sequences={length}): the batch is {list(batch.shape)}; it has to "
                    f"be [num_envs, time], of a time that is a multiple of {length}."
                )
            rows = rows.reshape(-1, length)
        if len(rows) < self.batch_size and not self._warned:
            self._warned = True
            _log.warning(
                "MiniBatches(batch_size=%d): the batch has %d %s, so each epoch is one optimizer "
                "step on all of them. Lower batch_size, or collect more.",
                *(self.batch_size, len(rows), "sequences" if self.sequences else "steps"),
            )
        return rows

    def upcoming(self, number: int) -> list[TensorDictBase]:
        """Return up to ``number`` next mini-batches of this epoch without consuming them."""
        return list(islice(self._pieces, number))

    def fill(self, piece: TensorDictBase) -> None:
        """Gather the rows of a mini-batch and of all that remain in this epoch."""
        for each in (piece, *self._pieces):
            if INDEX in each:
                each.update(self.rows[each.get(INDEX)])
                del each[INDEX]

    def shard(self, rank: int, world_size: int) -> None:
        """Divide the mini-batches among the ranks."""
        self.batch_size = share_equally(self.batch_size, world_size, "MiniBatches: batch_size")


# -- `BatchSubSampler`: a random part of the batch.


@dataclass(eq=False, repr=False)
class BatchSubSampler(TrainerHookBase):
    """Draws a random sub-batch of the collected batch for every optimizer step.

    From a one-dimensional batch, steps are drawn without replacement. Otherwise the last dimension
    is time, and pieces of trajectories of equal length are drawn with replacement, at any position
    that has room for a whole piece.

    Args:
        batch_size: Steps in a sub-batch.
        sub_traj_len: Steps in a piece; 0 or less for whole trajectories.
        min_sub_traj_len: Least steps in a piece if trajectories, as marked by ``("collector",
            "mask")``, are shorter than ``sub_traj_len``.
    """

    at = "process_optim_batch"
    default_name = "batch_subsampler"

    batch_size: int
    sub_traj_len: int = 0
    min_sub_traj_len: int = 0

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return ``[min(batch_size, n)]`` steps, or ``[batch_size // length, length]`` for pieces.

        Args:
            batch: ``[n]`` or ``[..., time]``.

        Raises:
            ConfigError: If a piece is longer than the batch's time or than ``batch_size``.
        """
        if batch.ndim == 1:
            return batch[torch.randperm(batch.shape[0], device=device_of(batch))[: self.batch_size]]
        batch = batch.reshape(-1, batch.shape[-1])
        time, mask, device = batch.shape[1], mask_of(batch), device_of(batch)
        valid = None if mask is None else mask.sum(-1)
        shortest = time if valid is None else int(valid.min())
        for name in ("sub_traj_len", "min_sub_traj_len"):
            if (length := getattr(self, name)) > time:
                raise ConfigError(
                    f"BatchSubSampler: {name}={length} is longer than the batch's {time} steps."
                )
        length = self.sub_traj_len if self.sub_traj_len > 0 else time
        length = max(self.min_sub_traj_len, min(length, shortest), 1)
        if length > self.batch_size:
            raise ConfigError(
                f"BatchSubSampler: batch_size={self.batch_size} holds no piece of {length} steps."
            )
        number, room = (self.batch_size // length,), time - length + 1
        if valid is None:
            rows = torch.randint(len(batch), number, device=device)
        else:
            candidates = (valid >= length).nonzero().squeeze(-1)
            if not len(candidates):
                raise ConfigError(
                    f"BatchSubSampler: no trajectory of the batch has {length} valid steps: lower "
                    "min_sub_traj_len."
                )
            rows = candidates[torch.randint(len(candidates), number, device=device)]
            room = valid[rows] - length + 1  # positions at which a whole piece fits
        starts = (torch.rand(rows.shape, device=device) * room).long()
        return batch[rows.unsqueeze(-1), starts.unsqueeze(-1) + torch.arange(length, device=device)]

    def shard(self, rank: int, world_size: int) -> None:
        """Divide the sub-batches among the ranks."""
        self.batch_size = share_equally(self.batch_size, world_size, "BatchSubSampler: batch_size")


# -- `mask_batch`: drops the padding of split trajectories.


def mask_batch(batch: TensorDictBase) -> TensorDictBase:
    """Keep the steps that ``("collector", "mask")`` marks; register it at ``batch_process``.

    Args:
        batch: ``[trajectories, time]``, padded in time, with a boolean mask of that shape.

    Returns:
        ``[valid steps]``; ``batch`` itself if it has no mask.
    """
    return valid_steps(batch)


# -- `SelectKeys`.


class SelectKeys(TrainerHookBase):
    """Keeps only the given keys of every collected batch.

    Args:
        keys: Keys to keep; a nested key is a tuple of strings.

    Raises:
        ConfigError: If ``keys`` is a string.
    """

    at = "batch_process"

    def __init__(self, keys: Sequence[NestedKey]) -> None:
        if isinstance(keys, str):
            raise ConfigError(f"SelectKeys({keys!r}): pass a sequence of keys: [{keys!r}].")
        self.keys = list(keys)

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the batch with the selected keys only; tensors are shared."""
        return batch.select(*self.keys)
