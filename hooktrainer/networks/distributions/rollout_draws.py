"""Drawing the actions of a rollout, one step after another, in memory that is there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]


class Draws(Protocol):
    """Draws actions as a distribution's `sample` does, bit for bit, without making anything.

    Attributes:
        parameters: For each step where the distribution's parameters are written before its action
            is drawn, ``[*batch, parameter_features]``.
    """

    parameters: Sequence[Array]

    def begin(self, deterministic: bool) -> None:
        """Begin a rollout: draw from torch's generator what the samples of all steps would draw.

        Args:
            deterministic: Whether modes are taken.
        """

    def __call__(self, t: int) -> Array:
        """The actions of step ``t``, ``[*batch, *shape]``."""


class CategoricalDraws:
    """Draws one of n actions.

    Args:
        outputs: Where ``"action"`` and ``"logits"`` of all steps are written, ``[time, *batch]``
            and ``[time, *batch, n]``.
    """

    def __init__(self, outputs: Mapping[str, torch.Tensor]) -> None:
        logits, actions = outputs["logits"], outputs["action"]
        self.parameters: Sequence[Array] = list(logits.numpy())
        self._actions = list(actions.numpy())
        clocks = torch.empty_like(logits)
        self._noise = clocks
        self._noise_of = clocks.unbind(0)
        self._clocks = list(clocks.numpy())
        self._scores = np.empty_like(self.parameters[0])

    def begin(self, deterministic: bool) -> None:
        """See `Draws.begin`."""
        if deterministic:
            self._noise.zero_()
            return
        for noise in self._noise_of:  # one call a step, as what is drawn depends on the size
            noise.exponential_().log_()

    def __call__(self, t: int) -> Array:
        """See `Draws.__call__`."""
        np.subtract(self.parameters[t], self._clocks[t], out=self._scores)
        return self._scores.argmax(-1, out=self._actions[t])
