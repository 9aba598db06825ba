"""`Memory`: from the features of a step and hidden states to features that know the episode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey
from torch import Tensor, nn

from ...errors import ConfigError
from ..inputs import arguments, takes_one


class Memory(nn.Module, ABC):
    """From the features of a step and hidden states to other features and the next hidden states.

    One rule says how it is called, by the shape of ``is_init``, which is true where an episode
    begins:

    - ``[batch, 1]`` is one step;
    - ``[batch, time, 1]`` is a sequence. It begins with the hidden states that are stored at its
      first step; those of later steps are not looked at.

    Where ``is_init`` is true everything before is forgotten: the hidden states are zeros there.
    Both ways agree to float rounding.

    To make another one, derive from this and say what a `step` does; a `sequence` is that in a loop
    unless something quicker is known.

    Args:
        in_features: Size of the last dimension of what it is given.
        out_features: Size of the last dimension of what it returns.
        hidden: The hidden states of one environment, by name: examples, of which shape and type
            count.

    Attributes:
        in_features: As given.
        out_features: As given.
        hidden: As given, zeros.
    """

    def __init__(self, in_features: int, out_features: int, hidden: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.hidden = {name: torch.zeros_like(example) for name, example in hidden.items()}

    @abstractmethod
    def step(self, x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One step of some environments.

        Args:
            x: ``[batch, in_features]``.
            states: The hidden states, ``[batch, ...]`` each.

        Returns:
            Features ``[batch, out_features]``, and the next hidden states.
        """

    def sequence(
        self, x: Tensor, is_init: Tensor, states: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Many steps of some environments.

        Args:
            x: ``[batch, time, in_features]``.
            is_init: ``[batch, time, 1]``.
            states: The hidden states before the first step, ``[batch, ...]`` each.

        Returns:
            Features ``[batch, time, out_features]``, and the hidden states after each step,
            ``[batch, time, ...]``.
        """
        outputs, after = [], []
        for step, begins in zip(x.unbind(1), is_init.unbind(1), strict=True):
            output, states = self.step(step, _forget(begins, states))
            outputs.append(output)
            after.append(states)
        return torch.stack(outputs, 1), tuple(
            torch.stack(state, 1) for state in zip(*after, strict=True)
        )

    def forward(
        self, x: Tensor, is_init: Tensor, *states: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features ``[*batch, out_features]``, and the hidden states after each step.

        Args:
            x: ``[*batch, in_features]``.
            is_init: ``[*batch, 1]``: of two dimensions it is one step, of three a sequence.
            *states: The hidden states before each step, ``[*batch, ...]`` each; of a sequence the
                first is enough.

        Raises:
            ConfigError: If ``is_init`` has another number of dimensions.
        """
        if is_init.ndim == 2:
            return self.step(x, _forget(is_init, states))
        if is_init.ndim == 3:
            return self.sequence(x, is_init, tuple(state[:, 0] for state in states))
        raise ConfigError(
            f"{type(self).__name__}: is_init is {list(is_init.shape)}; of one step it is "
            "[batch, 1], of a sequence [batch, time, 1]."
        )


def _forget(is_init: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The hidden states ``[batch, ...]``, zeros where an episode begins."""
    return tuple(
        torch.where(is_init.view(-1, *(1,) * (state.ndim - 1)), 0, state) for state in states
    )


# -- `MemoryTrunk`: an encoder and a memory, which policies and values stand on.

IS_INIT = "is_init"
"""The entry that says where an episode begins, ``[*batch, 1]``."""
States = dict[NestedKey, Tensor]
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

    def forward(self, *inputs: Tensor) -> Tensor:
        """The features ``[*batch, out_features]`` of the entries ``in_keys``."""
        return self.remember(*inputs)[0]

    def remember(self, *inputs: Tensor) -> tuple[Tensor, States]:
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
