"""`GradientGraph`: losses and their gradients as one compiled graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from ..base.tensordicts import laid_out_as
from ..objectives.common import Entries
from .compiling import Graph, quiet
from .functional_loss import FunctionalLoss, Losses, Objective, Reached

Grads = tuple[Sequence[nn.Parameter], Sequence[torch.Tensor]]


class Gradient:
    """Losses, and the gradient of each of several objectives, as functions.

    Args:
        loss: The loss.
        objectives: What the optimizers minimize, each by its own parameters alone.
        reached: What they depend on.

    Attributes:
        loss: The loss.
        parameters: Those that some objective depends on, objective by objective.
        names: What each of them is called in a call of the loss.
    """

    def __init__(
        self, loss: FunctionalLoss, objectives: Sequence[Objective], reached: Reached
    ) -> None:
        self.loss = loss
        self._objectives = objectives
        self._reached = reached
        self.parameters = [p for own in reached.parameters for p in own]
        names = loss.names
        self.names = [names[parameter] for parameter in self.parameters]

    def gradients(
        self, parameters: list[torch.Tensor], entries: Entries
    ) -> tuple[Losses, list[list[torch.Tensor]]]:
        """Losses and gradients as a function of everything that they depend on.

        Args:
            parameters: In place of `parameters`.
            entries: Of a batch.
        """

        def totals(*values: torch.Tensor) -> tuple[list[torch.Tensor], Losses]:
            return self.totals(values, entries)

        if self._reached.apart:
            everywhere = tuple(range(len(parameters)))
            grads, out = torch.func.grad(
                lambda *values: _summed(*totals(*values)), everywhere, has_aux=True
            )(*parameters)
            return out, self._by_objective(parameters, [grads] * len(self._objectives))
        found, pull_back, out = torch.func.vjp(  # type: ignore[misc]
            totals, *parameters, has_aux=True
        )
        pulled = []
        place = 0
        for own in self._reached.parameters:
            if own:
                one = [torch.full_like(f, float(i == place)) for i, f in enumerate(found)]
                pulled.append(pull_back(one))
                place += 1
            else:
                pulled.append(())
        return out, self._by_objective(parameters, pulled)

    def totals(
        self, parameters: Sequence[torch.Tensor], entries: Entries
    ) -> tuple[list[torch.Tensor], Losses]:
        """What the objectives minimize that depend on a parameter, and the losses.

        Args:
            parameters: As for `gradients`.
            entries: Likewise.
        """
        out = self.loss(dict(zip(self.names, parameters, strict=True)), entries)
        found = [objective.total(out) for objective in self._objectives]
        kept = [
            total
            for total, own in zip(found, self._reached.parameters, strict=True)
            if total is not None and own
        ]
        return kept, {key: value.detach() for key, value in out.items()}

    def _by_objective(
        self, parameters: Sequence[torch.Tensor], grads: Sequence[Sequence[torch.Tensor]]
    ) -> list[list[torch.Tensor]]:
        """Of the gradients of all parameters by every objective, each one's own."""
        out, first = [], 0
        for mine, own in zip(grads, self._reached.parameters, strict=True):
            end = first + len(own)
            out.append(list(map(laid_out_as, parameters[first:end], mine[first:end])))
            first = end
        return out


class GradientGraph(Gradient):
    """Losses, and the gradient of each of several objectives, as one compiled graph.

    Args:
        loss: As for `Gradient`.
        objectives: Likewise.
        reached: Likewise.
        say: Told when it is compiled.
    """

    def __init__(
        self,
        loss: FunctionalLoss,
        objectives: Sequence[Objective],
        reached: Reached,
        say: Callable[[str], None] = quiet,
    ) -> None:
        super().__init__(loss, objectives, reached)
        self._graph = Graph(self.gradients, "the losses and their gradient", say, module=loss.body)

    def __call__(self, entries: Entries) -> tuple[Losses, list[Grads]]:
        """The losses of a batch, and by objective the parameters and their gradients.

        A gradient has the strides of its parameter, as autograd's have.

        Raises:
            CannotCompileError: If they are no graph.
        """
        out, grads = self._graph([p.detach() for p in self.parameters], entries)
        return dict(out), list(zip(self._reached.parameters, grads, strict=True))


def _summed(totals: list[torch.Tensor], out: Losses) -> tuple[torch.Tensor, Losses]:
    total = totals[0]
    for other in totals[1:]:
        total = total + other
    return total, out
