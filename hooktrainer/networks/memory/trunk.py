"""`MemoryTrunk`: an encoder and a memory, which policies and values stand on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey
from torch import nn

from ..inputs import arguments, takes_one
from .any_memory import Memory

IS_INIT = "is_init"
"""The entry that says where an episode begins, ``[*batch, 1]``."""

States = dict[NestedKey, torch.Tensor]
"""Hidden states by the key that they are read under, ``[*batch, ...]`` each."""


class MemoryTrunk(nn.Module):
    """From observations, ``"is_init"`` and hidden states to features that know the episode.

    It is a ``trunk`` of `Policy`, `ValueNetwork`, `QNetwork` and `DeterministicPolicy`. Who acts
    with it writes the next hidden states under ``"next"``; `VectorCollector` carries them from step
    to step, and sets them back where an episode begins. `Memory` says what is one step and what a
    sequence.

    Args:
        encoder: To features. If its ``forward`` takes one tensor, it gets the observations joined;
            if it takes several, one for each of ``observed``.
        memory: Takes the features.
        observed: The entries of the observation.
        name: Its hidden states are entries ``(name, ...)``.

    Attributes:
        in_keys: What it reads: the observation, ``"is_init"``, hidden states.
        hidden_keys: The hidden states among these.
        out_features: Size of the features.

    Examples:
        >>> trunk = MemoryTrunk(nn.Identity(), GRUMemory(4, 8))
        >>> policy = CategoricalPolicy(mlp(8, 2), trunk.in_keys, trunk=trunk)
    """

    def __init__(
        self,
        encoder: nn.Module,
        memory: Memory,
        observed: Sequence[NestedKey] = ("observation",),
        name: str = "memory",
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.memory = memory
        self.observed = list(observed)
        self.hidden_keys: list[NestedKey] = [(name, each) for each in memory.hidden]
        self.in_keys: list[NestedKey] = [*self.observed, IS_INIT, *self.hidden_keys]
        self.out_features = memory.out_features
        self._joins = takes_one(encoder)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The features ``[*batch, out_features]`` of the entries ``in_keys``."""
        return self.remember(*inputs)[0]

    def remember(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, States]:
        """The features ``[*batch, out_features]``, and the hidden states after each step.

        Args:
            *inputs: The entries ``in_keys``, ``[*batch, ...]`` each.
        """
        number = len(self.observed)
        encoded = self.encoder(*arguments(inputs[:number], self._joins))
        features, states = self.memory(encoded, *inputs[number:])
        return features, dict(zip(self.hidden_keys, states, strict=True))

    def make_tensordict_primer(self) -> Any:
        """The first hidden states, as whoever carries them asks for them."""
        from torchrl.data import Composite, Unbounded
        from torchrl.envs import TensorDictPrimer

        spec = Composite()
        for key, first in zip(self.hidden_keys, self.memory.hidden.values(), strict=True):
            spec[key] = Unbounded(shape=first.shape, dtype=first.dtype)
        return TensorDictPrimer(spec, default_value=0)
