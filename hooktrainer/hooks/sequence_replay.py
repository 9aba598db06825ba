"""Store what is collected as sequences, and train on samples of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase, unravel_key

from ..base.checks import check_count
from ..errors import ConfigError
from .replay_buffer import ReplayBufferTrainer


class SequenceReplay(ReplayBufferTrainer):
    """Cuts what every environment plays into sequences, each a row of a replay buffer.

    For networks with a memory (Kapturowski et al., 2019, Recurrent Experience Replay in Distributed
    Reinforcement Learning). Sequences go on over the ends of batches and episodes; where an episode
    begins says ``"is_init"``. Each overlaps the one before it. If that is by as many steps as the
    loss burns in, every step is learned from in one sequence.

    A row has the entries of its steps, ``[length, ...]``, and of hidden states the first, ``[1,
    ...]``. Until there is a sequence, the inner loop ends without an optimizer step.

    Args:
        replay_buffer: As for `ReplayBufferTrainer`; it holds so many sequences, and samples as
            many. Its ``keys`` are stored.
        length: Steps of a sequence.
        overlap: Steps that it shares with the one before it.
        hidden_keys: The hidden states: a loss's ``hidden_keys``.
        batch_size: Sequences of a sample; by default the buffer's own.

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
                f"SequenceReplay: overlap={overlap} leaves nothing new of sequences of {length} "
                "steps: make it smaller, or these longer."
            )
        if getattr(replay_buffer, "keys", None) is None:
            raise ConfigError(
                "SequenceReplay: the replay buffer keeps whatever it is given: say what of a batch "
                "is stored, ReplayBuffer(..., keys=loss_module.in_keys)."
            )
        self.length = length
        self.overlap = overlap
        self.hidden_keys = [unravel_key(key) for key in hidden_keys]
        self._open: TensorDictBase | None = None  # the steps of sequences that have not ended

    def extend(self, batch: TensorDictBase) -> TensorDictBase:
        """Store the sequences that end in ``batch``, which is returned as it is.

        Args:
            batch: ``[num_envs, time]``, which goes on where the batch before it ended.

        Raises:
            ConfigError: If it has another number of dimensions.
        """
        if batch.ndim != 2:
            raise ConfigError(
                f"SequenceReplay: the batch is {list(batch.shape)}; it has to be [num_envs, time]."
            )
        steps = batch.select(*self.replay_buffer.keys)
        device = self.replay_buffer.device
        if any(value.device != device for value in steps.values(True, True)):
            steps = steps.to(device)
        if self._open is not None and len(self._open) == len(steps):
            steps = torch.cat([self._open.to(device), steps], 1)
        begin = 0
        while begin + self.length <= steps.shape[1]:
            self.replay_buffer.extend(self._rows(steps[:, begin : begin + self.length]))
            begin += self.length - self.overlap
        self._open = steps[:, begin:].clone()
        return batch

    def sample(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a sample ``[batch_size]`` of sequences; without any yet, skip the step."""
        if not len(self.replay_buffer):
            self.trainer.skip_optim_step()
        return super().sample(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return the buffer's state, and the steps of sequences that have not ended."""
        return {**super().state_dict(), "open": self._open}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore both."""
        super().load_state_dict(state_dict)
        self._open = state_dict["open"]

    def _rows(self, steps: TensorDictBase) -> TensorDict:
        """``[num_envs, length]`` as ``[num_envs]`` rows."""
        rows = TensorDict({}, batch_size=steps.shape[:1])
        for key in self.replay_buffer.keys:
            value = steps.get(key)
            rows.set(key, value[:, :1] if key in self.hidden_keys else value)
        return rows
