"""`RateRule`: a hook that sets the learning rate of a step by what its losses are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .averaging_hook import AveragingHook


class RateRule(AveragingHook):
    """A hook at ``optimizer`` that sets the learning rate of the step to come, and does no more.

    What takes steps as compiled graphs, `CompiledStep`, computes the rule within them, by `rate`,
    and gives what has come out of it to the hook, whose turn is afterwards.

    Attributes:
        optimizer: All of its parameter groups have the rate.
        computed: The rate of the step that the hook is called for next, a scalar, where a graph has
            computed it.
    """

    trains = False
    optimizer: torch.optim.Optimizer
    computed: torch.Tensor | None = None

    @property
    @abstractmethod
    def numbers(self) -> Sequence[float]:
        """What the rule depends on beside the losses; a schedule, say, may change them."""

    @abstractmethod
    def rate(
        self, losses: Mapping[str, torch.Tensor], lr: torch.Tensor, numbers: Sequence[Any]
    ) -> torch.Tensor:
        """The rate of a step, as a function of tensors alone.

        Args:
            losses: What the loss module has returned for it.
            lr: The rate of the step before, a scalar.
            numbers: Those of `numbers`, each a number or, in a graph, a scalar tensor.
        """
