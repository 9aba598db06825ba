"""What stands in for an optimizer's update where a graph has computed it already."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDictBase
from torch import nn

from .optimizer_update import OptimizerUpdate


class TakenStep:
    """The update of an optimizer whose step was taken together with the losses.

    Attributes:
        norm: The norm of the gradient.
    """

    def __init__(self) -> None:
        self.norm: torch.Tensor | None = None

    def backward(self, losses: TensorDictBase) -> None:
        """Do nothing."""

    def clip(self, clip_grad_norm: bool, clip_norm: float | None) -> torch.Tensor | None:
        """Return the norm there was."""
        return self.norm

    def step(self) -> None:
        """Do nothing."""


class GivenGradients:
    """The update of an optimizer whose gradients were computed together with the losses.

    Args:
        update: What computes them where none are given.
        optimizer: The optimizer.

    Attributes:
        grads: Parameters, and their gradients.
    """

    def __init__(self, update: OptimizerUpdate, optimizer: torch.optim.Optimizer) -> None:
        self.grads: tuple[Sequence[nn.Parameter], Sequence[torch.Tensor]] = ((), ())
        self.clip = update.clip
        self.step = update.step
        self._update = update
        self._optimizer = optimizer

    def backward(self, losses: TensorDictBase) -> None:
        """Put the gradients where the optimizer looks for them."""
        if not self.grads[0]:
            self._update.backward(losses)  # which says what is wrong
        self._optimizer.zero_grad()
        for parameter, grad in zip(*self.grads, strict=True):
            parameter.grad = grad
