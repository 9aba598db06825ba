"""Store what is collected in a replay buffer and train on samples of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase, pad

from ..base.batches import mask_of, valid_steps
from ..base.checks import share_equally
from ..loop.hook import TrainerHookBase
from ..replay import ReplayBuffer

if TYPE_CHECKING:
    from ..loop.loop import Loop


class ReplayBufferTrainer(TrainerHookBase):
    """Extends a replay buffer with every batch, samples it, and updates its priorities.

    Args:
        replay_buffer: A `torchrl.data.ReplayBuffer` or an object with its methods.
        batch_size: Size of a sample; by default the buffer's own.
        memmap: Whether batches are memory-mapped before they are stored.
        device: Where samples are put; by default they stay where the storage has them.
        flatten_tensordicts: Whether ``[num_envs, time]`` is stored as ``[num_envs * time]``, valid
            steps only. The last step in time of each environment is marked truncated in the
            buffer, since the step stored behind it does not follow it.
        max_dims: Sizes to which batches are padded if they are not flattened; -1: as they are.
        iterate: Whether samples come from iterating over the buffer; when it ends, so does the
            inner loop, and the next epoch iterates again.
    """

    def __init__(
        self,
        replay_buffer: Any,
        batch_size: int | None = None,
        memmap: bool = False,
        device: torch.device | str | None = None,
        flatten_tensordicts: bool = False,
        max_dims: Sequence[int] | None = None,
        iterate: bool = False,
    ) -> None:
        self.replay_buffer = replay_buffer
        self.batch_size = batch_size
        self.memmap = memmap
        self.device = device
        self.flatten_tensordicts = flatten_tensordicts
        self.max_dims = max_dims
        self.iterate = iterate
        self._samples: Any = None

    def extend(self, batch: TensorDictBase) -> TensorDictBase:
        """Store ``batch``, which itself is left as it is.

        Args:
            batch: ``[num_envs, time]`` or any other shape, time last.

        Returns:
            What was stored: flattened and padded; as memory-mapped tensors if asked for.
        """
        if self.flatten_tensordicts:
            batch = _flatten(batch)
        elif self.max_dims is not None:
            batch = pad(batch, _padding(batch.batch_size, self.max_dims))
        batch = self._moved(batch)
        if self.memmap:
            batch = batch.memmap()
        self.replay_buffer.extend(batch)
        return batch

    def _moved(self, batch: TensorDictBase) -> TensorDictBase:
        """``batch`` where the buffer can take it; `hooktrainer.ReplayBuffer` takes it anywhere."""
        if isinstance(self.replay_buffer, ReplayBuffer) and not self.memmap:
            return batch
        storage = getattr(self.replay_buffer, "_storage", None)
        device = getattr(storage, "device", None)
        if self.memmap or not isinstance(device, torch.device):
            device = torch.device("cpu")
        if all(value.device.type == device.type for value in batch.values(True, True)):
            return batch
        return batch.to(device)

    def sample(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a sample.

        Raises:
            StopIteration: When an iteration over the buffer ends.
        """
        if self.iterate:
            if self._samples is None:
                self._samples = iter(self.replay_buffer)
            try:
                sample = next(self._samples)
            except StopIteration:
                self._samples = None
                raise
        elif self.batch_size is None:
            sample = self.replay_buffer.sample()
        else:
            sample = self.replay_buffer.sample(self.batch_size)
        return sample if self.device is None else sample.to(self.device)

    def update_priority(self, batch: TensorDictBase) -> None:
        """Tell the buffer the priorities that the loss wrote into the sample."""
        self.replay_buffer.update_tensordict_priority(batch)

    @property
    def prioritized(self) -> bool:
        """Whether the buffer's sampler makes anything of priorities."""
        from torchrl.data.replay_buffers.samplers import Sampler

        sampler = getattr(self.replay_buffer, "sampler", None)
        update = getattr(type(sampler), "update_priority", None)
        return update not in (None, Sampler.update_priority) and hasattr(
            self.replay_buffer, "update_tensordict_priority"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the buffer's state: storage, sampler, writer."""
        return {"replay_buffer": self.replay_buffer.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the buffer."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Loading the storage on an uninitialized TensorDict")
            self.replay_buffer.load_state_dict(state_dict["replay_buffer"])
        # torchrl's storages forget their device when they are loaded before their first use.
        storage: Any = getattr(self.replay_buffer, "_storage", None)
        content = getattr(storage, "_storage", None)
        if isinstance(content, TensorDictBase) and content.device is None:
            storage._storage = content.to(storage.device)

    def shard(self, rank: int, world_size: int) -> None:
        """Divide the samples among the processes that train together; each has its own buffer."""
        whole = self.batch_size or getattr(self.replay_buffer, "batch_size", None)
        if whole is None:  # torchrl's
            whole = getattr(self.replay_buffer, "_batch_size", None)
        if whole is not None and not self.iterate:
            self.batch_size = share_equally(whole, world_size, "ReplayBufferTrainer: batch_size")

    def register(self, trainer: Loop, name: str = "replay_buffer") -> None:
        """Register at ``batch_process``, ``process_optim_batch`` and, if useful, ``post_loss``.

        Not at ``batch_process`` if the collector itself writes into the buffer.
        """
        trainer.register_module(name, self)
        if trainer.source.replay_buffer is not self.replay_buffer:
            trainer.register_op("batch_process", self.extend)
        trainer.register_op("process_optim_batch", self.sample)
        if self.prioritized:
            trainer.register_op("post_loss", self.update_priority)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_samples": None}


def _flatten(batch: TensorDictBase) -> TensorDictBase:
    """One dimension, valid steps only, the end of each row marked as a truncation."""
    if mask_of(batch) is not None:
        return valid_steps(batch)
    if ("next", "truncated") in batch.keys(True):
        last = (*[slice(None)] * (batch.ndim - 1), -1)  # in time, which is the last of its dims
        batch = batch.copy()  # shares its tensors; only those written below are new
        for key in (("next", "truncated"), ("next", "done")):
            if (flags := batch.get(key, None)) is not None:
                flags = flags.clone()
                flags[last] = True
                batch.set(key, flags)
    return batch.reshape(-1)


def _padding(shape: torch.Size, max_dims: Sequence[int]) -> list[int]:
    """The argument of `tensordict.pad`: none before, and what is missing after, each dimension."""
    return [
        n
        for size, most in zip(shape, max_dims, strict=True)
        for n in (0, 0 if most == -1 else most - size)
    ]
