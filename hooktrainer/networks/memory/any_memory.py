"""`Memory`: from the features of a step and hidden states to features that know the episode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import nn

from ...errors import ConfigError


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

    def __init__(
        self, in_features: int, out_features: int, hidden: Mapping[str, torch.Tensor]
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.hidden = {name: torch.zeros_like(example) for name, example in hidden.items()}

    @abstractmethod
    def step(
        self, x: torch.Tensor, states: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """One step of some environments.

        Args:
            x: ``[batch, in_features]``.
            states: The hidden states, ``[batch, ...]`` each.

        Returns:
            Features ``[batch, out_features]``, and the next hidden states.
        """

    def sequence(
        self, x: torch.Tensor, is_init: torch.Tensor, states: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
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
        self, x: torch.Tensor, is_init: torch.Tensor, *states: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
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


def _forget(is_init: torch.Tensor, states: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The hidden states ``[batch, ...]``, zeros where an episode begins."""
    return tuple(
        torch.where(is_init.view(-1, *(1,) * (state.ndim - 1)), 0, state) for state in states
    )
