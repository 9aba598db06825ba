"""The parameters of a group as one flat tensor, and their moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..errors import ConfigError


class FlatGroup:
    """The parameters of a group and their moments, each kind one tensor.

    Attributes:
        parameters: All of them, flat.
        exp_avg: The averages of their gradients, likewise.
        exp_avg_sq: The averages of the squares.
        steps: How many steps were made, float32, a scalar.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        first = parameters[0]
        for parameter in parameters:
            if (parameter.dtype, parameter.device) != (first.dtype, first.device):
                raise ConfigError(
                    f"FlatAdam: a parameter of {parameter.dtype} on {parameter.device} in a group "
                    f"with one of {first.dtype} on {first.device}. Give each kind a group of its "
                    "own, or use torch.optim.Adam."
                )
        self._owners = list(parameters)
        self._sizes = [parameter.numel() for parameter in parameters]
        self.parameters = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.exp_avg = torch.zeros_like(self.parameters)
        self.exp_avg_sq = torch.zeros_like(self.parameters)
        self.steps = torch.zeros((), dtype=torch.float32, device=first.device)
        self._grad = torch.zeros_like(self.parameters)
        self._grads = self._split(self._grad)
        moments = zip(self._split(self.exp_avg), self._split(self.exp_avg_sq), strict=True)
        self.states: dict[nn.Parameter, dict[str, torch.Tensor]] = {
            parameter: {"step": self.steps, "exp_avg": avg, "exp_avg_sq": avg_sq}
            for parameter, (avg, avg_sq) in zip(self._owners, moments, strict=True)
        }
        self._bind()

    @torch.no_grad()
    def move(self, parameters: torch.Tensor) -> None:
        """Have the parameters lie in other memory from now on; what is there is overwritten.

        Args:
            parameters: All of them, flat: of the size, contiguous.
        """
        self.parameters = parameters.copy_(self.parameters)
        self._bind()

    def _bind(self) -> None:
        """Have the parameters be views of the flat tensor."""
        for parameter, view in zip(self._owners, self._split(self.parameters), strict=True):
            parameter.data = view
        self._addresses = [parameter.data_ptr() for parameter in self._owners]

    @property
    def views(self) -> list[nn.Parameter]:
        """The parameters, each a view of the flat tensor."""
        return self._owners

    def _split(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """A flat tensor as views of the parameters' shapes."""
        pieces = torch.split(flat, self._sizes)
        return [piece.view(p.shape) for piece, p in zip(pieces, self._owners, strict=True)]

    @property
    def grads(self) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        """Where `gather` lays the gradients side by side, flat, and each one's view of it."""
        return self._grad, self._grads

    @property
    def has_grad(self) -> bool:
        """Whether there is a gradient; either all parameters have one or none has."""
        return self._owners[0].grad is not None or any(p.grad is not None for p in self._owners)

    def gather(self, bind: bool = False) -> torch.Tensor:
        """Lay the gradients side by side.

        Args:
            bind: Whether each is a view of the result from then on.
        """
        owners = self._owners
        grads = [parameter.grad for parameter in owners]
        if all(grad is view for grad, view in zip(grads, self._grads, strict=True)):
            return self._grad
        if any(grad is None for grad in grads):
            lacking = [
                tuple(p.shape) for p, grad in zip(owners, grads, strict=True) if grad is None
            ]
            raise ConfigError(
                f"FlatAdam: the parameters of shapes {lacking} have no gradient, while others of "
                "their group have one. Give them a group of their own, or use torch.optim.Adam."
            )
        if [parameter.data_ptr() for parameter in owners] != self._addresses:
            raise ConfigError(
                "FlatAdam: parameters were moved to other memory (by module.to(...), for "
                "instance) after the optimizer was made. Move them before."
            )
        torch._foreach_copy_(self._grads, grads)  # type: ignore[arg-type]
        if bind:
            for parameter, view in zip(owners, self._grads, strict=True):
                parameter.grad = view
        return self._grad

    def zero_grad(self, set_to_none: bool) -> None:
        """Forget the gradients, or set them to zero."""
        for parameter in self._owners:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = torch.zeros_like(parameter)

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Take over the states of the parameters; an empty one is that of no step."""
        steps = {float(state["step"]) if state else 0.0 for state in states}
        if len(steps) > 1:
            raise ConfigError(
                f"FlatAdam: the parameters of a saved group have made {sorted(steps)} steps, and "
                "here they can only step together. Load the state into a torch.optim.Adam."
            )
        self.steps.fill_(steps.pop())
        for owner, state in zip(self._owners, states, strict=True):
            for name in ("exp_avg", "exp_avg_sq"):
                own = self.states[owner][name]
                own.copy_(state[name]) if state else own.zero_()
