"""The actions of a running episode, kept so that it can be played again."""

from __future__ import annotations

import numpy as np

from .spaces import Array

_FIRST_CAPACITY = 64


class ActionLog:
    """A growing array of actions.

    Args:
        shape: Shape of one action.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._buffer: Array = np.zeros((_FIRST_CAPACITY, *shape))
        self._length = 0

    @property
    def actions(self) -> Array:
        """A copy of the actions so far, ``[steps, *shape]``."""
        return self._buffer[: self._length].copy()

    def extend(self, actions: Array) -> None:
        """Add ``actions``, ``[steps, *shape]``; the first ones of an episode set the type."""
        if not self._length:
            self._buffer = self._buffer.astype(actions.dtype, copy=False)
        end = self._length + len(actions)
        if end > len(self._buffer):
            more = np.zeros((end, *self._buffer.shape[1:]), self._buffer.dtype)
            self._buffer = np.concatenate([self._buffer, more])
        self._buffer[self._length : end] = actions
        self._length = end

    def clear(self) -> None:
        """Forget all actions: another episode begins."""
        self._length = 0
