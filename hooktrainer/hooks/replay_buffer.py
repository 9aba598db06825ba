"""Hooks that store batches in a replay buffer and sample it: transitions or sequences."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase, pad, unravel_key

from ..base.checks import check_count, share_equally
from ..base.tensordicts import mask_of, valid_steps
from ..errors import ConfigError
from ..loop.hook import TrainerHookBase
from ..loop.loop import Loop
from ..replay import ReplayBuffer
from .averaging import AveragingHook


@dataclass(eq=False, repr=False)
class ReplayBufferTrainer(TrainerHookBase):
    """Extends a replay buffer with every batch, samples it, and updates its priorities.

    Args:
        replay_buffer: A `torchrl.data.ReplayBuffer` or an object with its methods.
        batch_size: Size of a sample; by default the buffer's.
        memmap: Whether to memory-map batches before they are stored.
        device: Device of the samples; by default the storage's.
        flatten_tensordicts: Whether to store ``[num_envs, time]`` as ``[num_envs * time]``, without
            padding. The last step of each environment is marked truncated, since the next row does
            not follow it.
        max_dims: Sizes to pad unflattened batches to; -1 for no padding.
        iterate: Whether to iterate over the buffer instead; its end ends the inner loop.
    """

    saved_attributes = ("replay_buffer",)

    replay_buffer: Any
    batch_size: int | None = None
    memmap: bool = False
    device: torch.device | str | None = None
    flatten_tensordicts: bool = False
    max_dims: Sequence[int] | None = None
    iterate: bool = False

    def __post_init__(self) -> None:
        self._samples: Iterator[TensorDictBase] = iter(())
        self._epoch = (-1, -1)  # batch and epoch of the last sample

    def extend(self, batch: TensorDictBase) -> TensorDictBase:
        """Store a copy of ``batch``.

        Args:
            batch: ``[num_envs, time]`` or any other shape, time last.

        Returns:
            What was stored: flattened, padded or memory-mapped.
        """
        if self.flatten_tensordicts:
            batch = _flatten(batch)
        elif self.max_dims is not None:
            sizes = zip(batch.batch_size, self.max_dims, strict=True)
            batch = pad(batch, [n for size, m in sizes for n in (0, 0 if m == -1 else m - size)])
        batch = self._moved(batch)
        if self.memmap:
            batch = batch.memmap()
        self.replay_buffer.extend(batch)
        return batch

    def _moved(self, batch: TensorDictBase) -> TensorDictBase:
        """Move ``batch`` to the buffer's device; a `ReplayBuffer` of hooktrainer takes any."""
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
            before, self._epoch = self._epoch, (self.trainer.progress.batches, self.trainer.epoch)
            sample = next(self._samples, None)
            if sample is None:
                self._samples = iter(self.replay_buffer)
                if self._epoch == before:
                    raise StopIteration
                sample = next(self._samples)  # the last pass ended with the epoch before
        elif self.batch_size is None:
            sample = self.replay_buffer.sample()
        else:
            sample = self.replay_buffer.sample(self.batch_size)
        return sample if self.device is None else sample.to(self.device)

    def update_priority(self, batch: TensorDictBase) -> None:
        """Update the buffer with the priorities that the loss wrote into the sample."""
        self.replay_buffer.update_tensordict_priority(batch)

    @property
    def prioritized(self) -> bool:
        """Whether the buffer's sampler uses priorities."""
        from torchrl.data.replay_buffers.samplers import Sampler

        sampler = getattr(self.replay_buffer, "sampler", None)
        update = getattr(type(sampler), "update_priority", None)
        return update not in (None, Sampler.update_priority) and hasattr(
            self.replay_buffer, "update_tensordict_priority"
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the buffer."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Loading the storage on an uninitialized TensorDict")
            super().load_state_dict(state_dict)
        # TorchRL's storages lose their device if loaded before their first use.
        storage: Any = getattr(self.replay_buffer, "_storage", None)
        content = getattr(storage, "_storage", None)
        if isinstance(content, TensorDictBase) and content.device is None:
            storage._storage = content.to(storage.device)

    def shard(self, rank: int, world_size: int) -> None:
        """Divide the samples among the ranks; each has its own buffer."""
        whole = self.batch_size or getattr(self.replay_buffer, "batch_size", None)
        if whole is not None and not self.iterate:
            self.batch_size = share_equally(whole, world_size, "ReplayBufferTrainer: batch_size")

    def register(self, trainer: Loop, name: str = "replay_buffer") -> None:
        """Register at ``process_optim_batch``, mostly ``batch_process``, and maybe ``post_loss``.

        ``batch_process`` is skipped if the collector writes into the buffer, ``post_loss`` if the
        sampler uses no priorities.
        """
        trainer.register_module(name, self)
        if trainer.source.replay_buffer is not self.replay_buffer:
            trainer.register_op("batch_process", self.extend)
        trainer.register_op("process_optim_batch", self.sample)
        if self.prioritized:
            trainer.register_op("post_loss", self.update_priority)


def _flatten(batch: TensorDictBase) -> TensorDictBase:
    """Flatten to valid steps; without padding, the end of each row is marked truncated."""
    if mask_of(batch) is not None:
        return valid_steps(batch)
    if ("next", "truncated") in batch.keys(True):
        last = (*[slice(None)] * (batch.ndim - 1), -1)  # time is last
        batch = batch.copy()
        for key in (("next", "truncated"), ("next", "done")):
            if (flags := batch.get(key, None)) is not None:
                flags = flags.clone()
                flags[last] = True
                batch.set(key, flags)
    return batch.reshape(-1)


# -- Hooks that store more than one step of an environment at a time.


class ContinuedReplay(ReplayBufferTrainer, AveragingHook):
    """Base class of hooks that store what continues across batches, such as sequences.

    Steps that are not stored yet are its state. Optimizer steps are skipped until some are stored,
    with several ranks on each of them.
    """

    saved_attributes = ("replay_buffer", "_open")  # type: ignore[assignment]
    _is_filled = False

    def sample(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a sample; skip the step if nothing is stored yet."""
        if not self._is_filled:  # one rank alone would wait for gradients that others never send
            share = torch.tensor(float(len(self.replay_buffer) > 0))
            self._average([share])
            self._is_filled = share.item() == 1.0
        if not self._is_filled:
            self.trainer.skip_optim_step()
        return super().sample(batch)


class SequenceReplay(ContinuedReplay):
    """Stores overlapping sequences of each environment's steps as rows of a replay buffer.

    For networks with a memory (Kapturowski et al., 2019, Recurrent Experience Replay in Distributed
    Reinforcement Learning). Sequences continue across batches and episodes; ``"is_init"`` marks the
    start of an episode. If ``overlap`` equals the loss's ``burn_in``, each step is trained on in
    one sequence.

    A row has the entries of its steps, ``[length, ...]``, and the first hidden states, ``[1,
    ...]``. Optimizer steps are skipped until there is a sequence.

    Args:
        replay_buffer: As for `ReplayBufferTrainer`, sized in sequences, with ``keys``.
        length: Steps of a sequence.
        overlap: Steps shared with the previous sequence.
        hidden_keys: Hidden states: the ``hidden_keys`` of the loss.
        batch_size: Sequences of a sample; by default the buffer's.

    Raises:
        ConfigError: If the overlap is not shorter than the sequence, or the buffer has no ``keys``.
    """

    def __init__(
        self,
        replay_buffer: Any,
        length: int,
        *,
        overlap: int = 0,
        hidden_keys: Sequence[NestedKey] = (),
        batch_size: int | None = None,
    ) -> None:
        super().__init__(replay_buffer, batch_size)
        check_count("length", length)
        check_count("overlap", overlap, least=0)
        if overlap >= length:
            raise ConfigError(
                f"SequenceReplay: {overlap=} leaves nothing new of sequences of {length} steps."
            )
        if getattr(replay_buffer, "keys", None) is None:
            raise ConfigError(
                "SequenceReplay: give the buffer the keys to store: keys=loss_module.in_keys."
            )
        self.length = length
        self.overlap = overlap
        self.hidden_keys = [unravel_key(key) for key in hidden_keys]
        self._open: TensorDictBase | None = None  # incomplete sequences

    def extend(self, batch: TensorDictBase) -> TensorDictBase:
        """Store the sequences that end in ``batch``, and return it unchanged.

        Args:
            batch: ``[num_envs, time]``, the continuation of the previous batch.
        """
        steps = batch.select(*self.replay_buffer.keys)
        device = self.replay_buffer.device
        if any(value.device != device for value in steps.values(True, True)):
            steps = steps.to(device)
        if self._open is not None and len(self._open) == len(steps):
            steps = torch.cat([self._open.to(device), steps], 1)
        begin = 0
        while begin + self.length <= steps.shape[1]:
            sequence = steps[:, begin : begin + self.length]
            rows = TensorDict({}, batch_size=steps.shape[:1])
            for key in self.replay_buffer.keys:
                value = sequence.get(key)
                rows.set(key, value[:, :1] if key in self.hidden_keys else value)
            self.replay_buffer.extend(rows)
            begin += self.length - self.overlap
        self._open = steps[:, begin:].clone()
        return batch
