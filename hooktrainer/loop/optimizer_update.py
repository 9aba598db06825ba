"""How an `OptimizerHook` gets its gradients and takes its step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from tensordict import TensorDictBase
from torch import nn

from ..base.tensordicts import laid_out_as, total_loss
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
        scaler: Scales the losses, and leaves out a step whose gradient overflows.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        loss_components: Sequence[str] | None,
        grad_norm: bool,
    ) -> None:
        self.retain_graph = False
        self.checks: FiniteChecks | None = None
        self.scaler: torch.amp.GradScaler | None = None
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
        if self.scaler is not None:
            self.scaler.unscale_(self._optimizer)
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
        optimizer: Any = self._optimizer
        _lay_out_gradients(optimizer)
        can_leave_out = getattr(optimizer, "_step_supports_amp_scaling", False)
        if self.checks is not None and not can_leave_out:
            self.checks.settle()
        found_inf = self._found_inf() if can_leave_out else None
        if found_inf is not None:
            optimizer.found_inf = found_inf
            try:
                optimizer.step()
            finally:
                del optimizer.found_inf
        elif self.scaler is not None:
            self.scaler.step(optimizer)
        else:
            optimizer.step()
        if self.scaler is not None:
            self.scaler.update()
        self._optimizer.zero_grad()

    def _found_inf(self) -> torch.Tensor | None:
        """Whether no step is to be taken: 1 on the parameters' device; ``None`` if nobody knows."""
        found = [] if self.checks is None else [self.checks.found_inf]
        if self.scaler is not None:
            # By what scaler.step would go if there were no other reason than an overflow.
            found += self.scaler._found_inf_per_device(self._optimizer).values()
        reasons = [one for one in found if one is not None]
        return torch.stack(reasons).amax() if len(reasons) > 1 else next(iter(reasons), None)

    def _total(self, losses: TensorDictBase) -> torch.Tensor:
        total = total_loss(losses, self._components)
        if total is not None and self.scaler is not None:
            return self.scaler.scale(total)
        if total is None:
            raise HookError(
                f"no {self._components or 'key that begins with loss'} among the losses "
                f"{sorted(map(str, losses.keys()))}; name the loss's keys loss_<something>, or "
                "pass OptimizerHook their names as loss_components."
            )
        return total


def _lay_out_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Copy the gradients that do not have the strides of their parameters.

    Those that users or other libraries assign may not, and torch's fused kernels would scramble
    them without an error. Other optimizers follow the strides of both.
    """
    for group in optimizer.param_groups:
        if group.get("fused"):
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad = laid_out_as(parameter, parameter.grad)
