"""`SequenceCollector`: batches that are there already, such as a list of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensordict import TensorDictBase, is_tensor_collection

from ..base.checks import share_equally
from ..errors import ConfigError, StateMismatchError
from ..loop.check_trainer import not_a_tensordict
from .collector import CollectorBase


class SequenceCollector(CollectorBase):
    """Hands out batches one after another, once.

    Its state is where it stands. A share of it is the rows of each batch that belong to the share.

    Args:
        batches: TensorDicts, ``[rows, ...]``.

    Raises:
        ConfigError: If one of them is something else.
    """

    def __init__(self, batches: Sequence[TensorDictBase]) -> None:
        for index, batch in enumerate(batches):
            if not is_tensor_collection(batch):
                raise ConfigError(not_a_tensordict(f"collector[{index}] is", batch))
        self._batches = batches
        self._place = 0
        self._share = (0, 1)
        self._closed = False

    def collect(self) -> TensorDictBase:
        """Return the next batch.

        Raises:
            StopIteration: After the last one.
        """
        if self._closed:
            raise RuntimeError("The collector is shut down; build a new one.")
        if self._place >= len(self._batches):
            raise StopIteration
        batch = self._batches[self._place]
        index, number = self._share
        if number > 1:
            rows = share_equally(len(batch), number, "the rows of a batch,")
            batch = batch[index * rows : (index + 1) * rows]
        self._place += 1
        self.frames += batch.numel()
        return batch

    def check_shares(self, number: int) -> None:
        """Refuse batches whose rows cannot be shared equally."""
        for batch in self._batches:
            share_equally(len(batch), number, "the rows of a batch,")

    def shard(self, rank: int, world_size: int) -> None:
        """Keep a share of the rows of every batch."""
        self.check_shares(world_size)
        self._share = (rank, world_size)

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Go on where the shares stood, all at one place."""
        return {"place": states[0]["place"], "length": states[0]["length"]}

    def state_dict(self) -> dict[str, Any]:
        """Return how many batches were handed out, and of how many."""
        return {"place": self._place, "length": len(self._batches)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on behind the batches that were handed out.

        Raises:
            StateMismatchError: If there were other batches, as far as their number tells.
        """
        if state_dict.get("length") != len(self._batches):
            raise StateMismatchError(
                f"the saved run was trained on {state_dict.get('length')} batches; there are "
                f"{len(self._batches)} here."
            )
        self._place = state_dict["place"]
        _, number = self._share
        self.frames = sum(batch.numel() for batch in self._batches[: self._place]) // number

    def shutdown(self) -> None:
        """Hand out no more."""
        self._closed = True

    def __repr__(self) -> str:
        return f"SequenceCollector({len(self._batches)} batches)"
