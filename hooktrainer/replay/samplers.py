"""Uniform samplers for `ReplayBuffer`: which transitions make up a batch."""

from __future__ import annotations

from typing import Any

import torch


class RandomSampler:
    """Draws every transition with the same probability, with replacement."""

    _rng: torch.Generator | None = None  # set by the buffer

    def sample(self, storage: Any, batch_size: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Draw a batch.

        Args:
            storage: What is drawn from; it has a length.
            batch_size: Number of draws.

        Returns:
            Indices ``[batch_size]``, and no further entries.

        Raises:
            RuntimeError: If nothing has been stored.
        """
        check_not_empty(storage, batch_size)
        drawn = torch.randint(
            len(storage), (batch_size,), generator=self._rng, device=_device(storage, self._rng)
        )
        return drawn, {}

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the sampler has no state of its own."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore nothing."""

    def _empty(self) -> None:
        """Forget nothing."""


class SamplerWithoutReplacement:
    """Goes through the transitions in passes, each of them once a pass.

    A pass is over what was stored when it began. When it ends, `ran_out` is true until the next
    draw, which begins another one.

    Args:
        drop_last: Whether to leave out the last batch of a pass if it is not full.
        shuffle: Whether the order is random; otherwise it is that of the storage.
    """

    _rng: torch.Generator | None = None  # set by the buffer
    _left: torch.Tensor
    ran_out: bool

    def __init__(self, drop_last: bool = False, shuffle: bool = True) -> None:
        self.drop_last = drop_last
        self.shuffle = shuffle
        self._empty()

    def sample(self, storage: Any, batch_size: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Take the next batch of the pass.

        Args:
            storage: What is drawn from; it has a length.
            batch_size: Number of draws; the last batch of a pass may be smaller.

        Returns:
            Indices ``[batch_size]``, and no further entries.

        Raises:
            RuntimeError: If less has been stored than a batch needs.
        """
        check_not_empty(storage, batch_size)
        if not len(self._left):
            self._left = self._new_pass(len(storage), _device(storage, self._rng))
        if self.drop_last and len(self._left) < batch_size:
            raise RuntimeError(
                f"{len(storage)} transitions do not fill a batch of {batch_size}: collect more "
                "first, or use drop_last=False."
            )
        index, self._left = self._left[:batch_size], self._left[batch_size:]
        self.ran_out = len(self._left) < (batch_size if self.drop_last else 1)
        if self.ran_out:
            self._left = self._left[:0]
        return index, {}

    def _empty(self) -> None:
        self._left = torch.empty(0, dtype=torch.int64)
        self.ran_out = False

    def _new_pass(self, length: int, device: torch.device | None) -> torch.Tensor:
        if not self.shuffle:
            return torch.arange(length, device=device)
        return torch.randperm(length, generator=self._rng, device=device)

    def state_dict(self) -> dict[str, Any]:
        """Return what is left of the pass."""
        return {"left": self._left.clone(), "ran_out": self.ran_out}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._left, self.ran_out = state_dict["left"].clone(), state_dict["ran_out"]


def _device(storage: Any, generator: torch.Generator | None) -> torch.device | None:
    """Where to draw: where the transitions are, so that nothing crosses; or as the generator is."""
    return getattr(storage, "device", None) if generator is None else generator.device


def check_not_empty(storage: Any, batch_size: int) -> None:
    """Refuse to draw where nothing has been stored."""
    if not len(storage):
        raise RuntimeError(
            f"cannot draw {batch_size} transitions from an empty buffer: collect some first."
        )
