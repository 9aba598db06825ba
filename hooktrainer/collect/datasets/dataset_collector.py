"""A collector that collects nothing: batches drawn from a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDict

from ...base.checks import check_count, share_equally
from ...errors import ConfigError, StateMismatchError
from ..collector import CollectorBase
from .dataset import Dataset


class DatasetCollector(CollectorBase):
    """Hands a data set to `Trainer`, as batches of transitions drawn at random.

    Each batch is one optimizer step's, so use it with ``optim_steps_per_batch=1``. What the trainer
    counts as frames are the transitions it was trained on, ``batch_size`` a step::

        Trainer(
            collector=DatasetCollector(dataset, batch_size=256),
            total_frames=256 * 10_000,  # ten thousand optimizer steps
            optim_steps_per_batch=1,
            ...
        )

    Draws are with replacement, from a generator of its own, whose state is the collector's state.
    Several processes that share it draw the same, and each takes its rows of a batch.

    Args:
        dataset: The data set.
        batch_size: Transitions of a batch.
        keys: Entries that the loss reads; the others are left out. ``None`` for all.
        seed: Seed of the draws; `Trainer` sets its own.
        device: Where the batches are; the data set is moved there once.

    Raises:
        ConfigError: If the data set lacks one of ``keys``.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        keys: Sequence[NestedKey] | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
    ) -> None:
        check_count("batch_size", batch_size)
        present = dataset.transitions.keys(include_nested=True)
        if missing := [key for key in keys or () if key not in present]:
            entries = sorted(map(str, dataset.transitions.keys(True, True)))
            raise ConfigError(f"the data set has no {missing}; it has {entries}.")
        self.batch_size = self.frames_per_batch = batch_size
        self._share = (0, 1)
        self._closed = False
        self._transitions = (
            dataset.transitions if keys is None else dataset.transitions.select(*keys)
        )
        if device is not None:
            self._transitions = self._transitions.to(device)
        self._generator = torch.Generator()
        self.set_seed(seed)

    def collect(self) -> TensorDict:
        """Draw a batch, ``[batch_size]``; a share has its part of the rows."""
        if self._closed:
            raise RuntimeError("The collector is shut down; build a new one.")
        number = len(self._transitions)
        index = torch.randint(number, (self.batch_size,), generator=self._generator)
        rank, world_size = self._share
        rows = self.batch_size // world_size
        if world_size > 1:
            index = index[rank * rows : (rank + 1) * rows]
        self.frames += rows
        return self._transitions[index]

    def check_shares(self, number: int) -> None:
        """Refuse a batch that cannot be shared equally."""
        share_equally(self.batch_size, number, "batch_size")

    def shard(self, rank: int, world_size: int) -> None:
        """Keep one of ``world_size`` shares of the rows of every batch."""
        self.check_shares(world_size)
        self._share = (rank, world_size)
        self.frames_per_batch = self.batch_size // world_size

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Go on with the draws that follow those of the shares."""
        return dict(states[0])

    def shutdown(self) -> None:
        """Draw no more."""
        self._closed = True

    def set_seed(self, seed: int, static_seed: bool = False) -> None:
        """Start over with the draws of ``seed``."""
        self.seed = seed
        self._generator.manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the generator, and how large the data set is."""
        return {"generator": self._generator.get_state(), "transitions": len(self._transitions)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of the generator.

        Raises:
            StateMismatchError: If the data set is another one, as far as its size tells.
        """
        if state_dict["transitions"] != len(self._transitions):
            raise StateMismatchError(
                f"the saved run was trained on a data set of {state_dict['transitions']} "
                f"transitions; this one has {len(self._transitions)}."
            )
        self._generator.set_state(state_dict["generator"])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_generator": self._generator.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._generator = torch.Generator()
        self._generator.set_state(state["_generator"])
