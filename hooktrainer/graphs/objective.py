"""`Objective`: what an optimizer minimizes, and which of its parameters that depends on."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..base.total_loss import total_loss
from ..objectives.common import Entries
from .functional_loss import FunctionalLoss


@dataclass(frozen=True, eq=False)
class Objective:
    """What one optimizer minimizes.

    Attributes:
        parameters: The optimizer's parameters that need a gradient.
        components: The keys of the losses whose sum is minimized; ``None`` for all that begin with
            ``"loss"``.
    """

    parameters: Sequence[nn.Parameter]
    components: Sequence[str] | None = None

    def total(self, losses: Mapping[Any, torch.Tensor]) -> torch.Tensor | None:
        """The sum that is minimized; ``None`` if a loss is missing."""
        return total_loss(losses, self.components)


@dataclass(frozen=True)
class Reached:
    """What each of several objectives depends on.

    Attributes:
        parameters: By objective, those of its own parameters.
        apart: Whether no objective depends on the parameters of another.
    """

    parameters: Sequence[Sequence[nn.Parameter]]
    apart: bool


def reached(loss: FunctionalLoss, entries: Entries, objectives: Sequence[Objective]) -> Reached:
    """Find out what objectives depend on, by computing a copy of the loss once.

    No random number is used up.

    Args:
        loss: The loss.
        entries: Of a batch.
        objectives: What the optimizers minimize.
    """
    twin = copy.deepcopy(loss)
    named = {name: parameter for parameter, name in twin.names.items()}
    pairs = {parameter: named[name] for parameter, name in loss.names.items()}
    devices = {value.get_device() for value in entries.values() if value.is_cuda}
    with torch.enable_grad(), torch.random.fork_rng(list(devices)):
        out = twin(named, entries)
        found = []
        for objective in objectives:
            total = objective.total(out)
            wanted = [parameter for each in objectives for parameter in each.parameters]
            grads: Sequence[torch.Tensor | None] = [None] * len(wanted)
            if total is not None and total.requires_grad:
                grads = torch.autograd.grad(
                    total, [pairs[p] for p in wanted], retain_graph=True, allow_unused=True
                )
            found.append({p for p, g in zip(wanted, grads, strict=True) if g is not None})
    return Reached(
        [
            [parameter for parameter in objective.parameters if parameter in depends]
            for objective, depends in zip(objectives, found, strict=True)
        ],
        all(
            depends.isdisjoint(other.parameters)
            for objective, depends in zip(objectives, found, strict=True)
            for other in objectives
            if other is not objective
        ),
    )
