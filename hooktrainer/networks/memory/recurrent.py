"""Recurrent memories: GRU and LSTM."""

from __future__ import annotations

import torch
from torch import nn

from .any_memory import Memory


class GRUMemory(Memory):
    """A gated recurrent unit (Cho et al., 2014, arXiv:1406.1078).

    Args:
        in_features: Size of the last dimension of what it is given.
        size: Size of its hidden state ``h``, which is also what it returns.
    """

    def __init__(self, in_features: int, size: int = 64) -> None:
        super().__init__(in_features, size, {"h": torch.zeros(size)})
        self.cell = nn.GRUCell(in_features, size)

    def step(
        self, x: torch.Tensor, states: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """One step: features and hidden state are the same."""
        h = self.cell(x, states[0])
        return h, (h,)


class LSTMMemory(Memory):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997).

    Args:
        in_features: Size of the last dimension of what it is given.
        size: Size of its hidden states ``h``, which it returns, and ``c``.
    """

    def __init__(self, in_features: int, size: int = 64) -> None:
        super().__init__(in_features, size, {"h": torch.zeros(size), "c": torch.zeros(size)})
        self.cell = nn.LSTMCell(in_features, size)

    def step(
        self, x: torch.Tensor, states: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """One step."""
        h, c = self.cell(x, states)
        return h, (h, c)
