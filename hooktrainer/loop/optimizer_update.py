"""How an `OptimizerHook` gets its gradients and takes its step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from tensordict import TensorDictBase
from torch import nn

from ..base.total_loss import total_loss
from ..errors import HookError
from .check_trainer import parameters_of
from .finite import FiniteChecks


class OptimizerUpdate(Protocol):
    """What an `OptimizerHook` does with losses, in three parts between which others may stand."""

    def backward(self, losses: TensorDictBase) -> None:
        """Have the gradients in the parameters' ``grad``."""

    def clip(self, clip_grad_norm: bool, clip_norm: float | None) -> torch.Tensor | None:
        """Bound the gradients; return their norm before, if it is computed."""

    def step(self) -> None:
        """Take the step, and forget the gradients."""


class EagerUpdate:
    """Calls autograd, and the optimizer.

    Args:
        optimizer: The optimizer.
        loss_components: Keys of the losses to minimize; ``None`` for all.
        grad_norm: Whether the norm is computed where clipping does not need it.

    Attributes:
        retain_graph: Whether other losses may share a part of the graph with these.
        checks: What says whether a step on an accelerator is to be left out.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        loss_components: Sequence[str] | None,
        grad_norm: bool,
    ) -> None:
        self.retain_graph = False
        self.checks: FiniteChecks | None = None
        self._optimizer = optimizer
        self._components = loss_components
        self._grad_norm = grad_norm
        # FlatAdam knows a quicker way.
        self._clip_itself: Any = getattr(optimizer, "clip_grad_norm_", None)

    def backward(self, losses: TensorDictBase) -> None:
        """Compute the gradients: with components, of the optimizer's parameters and no others."""
        if self._components is None:
            self._total(losses).backward()  # type: ignore[no-untyped-call]
            return
        self._optimizer.zero_grad()  # a step that was skipped after its backward left some behind
        self._total(losses).backward(  # type: ignore[no-untyped-call]
            inputs=[p for p in parameters_of(self._optimizer) if p.requires_grad],
            retain_graph=self.retain_graph,
        )

    def clip(self, clip_grad_norm: bool, clip_norm: float | None) -> torch.Tensor | None:
        """Bound the gradients; return their norm before, if it is computed."""
        if clip_norm is not None and clip_grad_norm and self._clip_itself is not None:
            return self._clip_itself(clip_norm)
        parameters = parameters_of(self._optimizer)
        if clip_norm is not None and clip_grad_norm:
            return nn.utils.clip_grad_norm_(parameters, clip_norm)
        norm = None
        if self._grad_norm:
            norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if clip_norm is not None:
            nn.utils.clip_grad_value_(parameters, clip_norm)
        return norm

    def step(self) -> None:
        """Take the step, unless something is not finite, and forget the gradients."""
        checks = self.checks
        found_inf = None if checks is None else checks.found_inf
        if checks is None or found_inf is None:
            self._optimizer.step()
        elif getattr(self._optimizer, "_step_supports_amp_scaling", False):
            optimizer: Any = self._optimizer
            optimizer.found_inf = found_inf
            try:
                optimizer.step()
            finally:
                del optimizer.found_inf
        else:
            checks.settle()
            self._optimizer.step()
        self._optimizer.zero_grad()

    def _total(self, losses: TensorDictBase) -> torch.Tensor:
        total = total_loss(losses, self._components)
        if total is None:
            raise HookError(
                f"no {self._components or 'key that begins with loss'} among the losses "
                f"{sorted(map(str, losses.keys()))}; name the loss's keys loss_<something>, or "
                "pass OptimizerHook their names as loss_components."
            )
        return total
