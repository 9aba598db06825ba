"""`StepGraph`: whole optimizer steps, from the losses to the new parameters, as one graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from ..base.tensordicts import is_loss, laid_out_as
from ..objectives.common import Entries
from ..optim import FlatAdam
from ..optim.flat_adam import AdamState, adam_step, hyperparameters
from .compiling import CannotCompileError, Graph, quiet
from .functional_loss import FunctionalLoss, Losses, Objective, Reached


class StepOutcome(NamedTuple):
    """Losses of a step, the gradient's norm before clipping and the learning rate, if computed."""

    losses: Losses
    norm: torch.Tensor | None
    rate: torch.Tensor | None = None


@dataclass(frozen=True)
class StepRules:
    """How a step is taken.

    Attributes:
        clips: What is bounded: the gradient's ``"norm"``, each ``"value"``, or ``None``.
        norm: Whether to compute the gradient's norm even if nothing depends on it.
        finite_losses: Whether a NaN or infinite loss prevents the step.
        finite_norm: Whether such a norm does.
        rule: Computes the learning rate, such as a `hooktrainer.KLAdaptiveLR`; ``None`` for the
            optimizer's own.
    """

    clips: str | None
    norm: bool = True
    finite_losses: bool = True
    finite_norm: bool = True
    rule: Any = None


class StepGraph:
    """Losses, gradient, clipping and `FlatAdam`'s step of one or several batches as one graph.

    It equals the eager computation to rounding. After a step that is not taken because of a value
    that is NaN or infinite, no later one of the graph is taken.

    Args:
        loss: The loss.
        optimizer: Takes the steps.
        reached: What the sum of the losses depends on.
        rules: How steps are taken.
        say: Called with a line before and after compiling.

    Raises:
        CannotCompileError: If only some parameters of a group have a gradient.
    """

    not_in_graphs: ClassVar = frozenset(  # but for its arguments
        ("_optimizer", "_flats", "_states", "_given", "_hyper", "_bound")
    )

    def __init__(
        self,
        loss: FunctionalLoss,
        optimizer: FlatAdam,
        reached: Reached,
        rules: StepRules,
        say: Callable[[str], None] = quiet,
    ) -> None:
        self._loss = loss
        self._optimizer = optimizer
        self._rules = rules
        self._objective = Objective(reached.parameters[0])
        names, moved = loss.names, set(reached.parameters[0])
        self._places = []
        for place, flat in enumerate(optimizer.flat_groups):
            has_grad = [view in moved for view in flat.views]
            if any(has_grad) and not all(has_grad):
                raise CannotCompileError("only some parameters of a FlatAdam group have a gradient")
            if any(has_grad):
                self._places.append(place)
        self._flats = [optimizer.flat_groups[place] for place in self._places]
        self._states = [
            AdamState(flat.parameters, flat.exp_avg, flat.exp_avg_sq, flat.steps)
            for flat in self._flats
        ]
        if self._device.type == "cuda":  # a CUDA graph changes them where they are
            for state in self._states:
                for value in state:
                    torch._dynamo.mark_static_address(value, guard=False)
        # Plain values, which a compiler can see to be constant.
        self._names = [[names[view] for view in flat.views] for flat in self._flats]
        self._shapes = [[tuple(view.shape) for view in flat.views] for flat in self._flats]
        self._sizes = [[view.numel() for view in flat.views] for flat in self._flats]
        self._decoupled = [
            bool(optimizer.param_groups[place]["decoupled_weight_decay"]) for place in self._places
        ]
        self._given: list[list[Any]] = []
        self._hyper: list[torch.Tensor] = []
        self._bound = (0.0, torch.zeros((), device=self._device))
        self._graph = Graph(self._run, "the optimizer step", say, module=loss.body)

    def __call__(
        self,
        batches: Sequence[Entries],
        clip_norm: float | None,
        again: bool = False,
        rows: Sequence[torch.Tensor] = (),
        is_finite: torch.Tensor | None = None,
    ) -> list[StepOutcome]:
        """Take a step for each batch.

        Args:
            batches: The entries of each; with ``rows`` those of one batch that all are parts of.
            clip_norm: The bound of what is clipped.
            again: Whether nothing but numbers can have changed since the last call.
            rows: Indices of the rows of each, int64.
            is_finite: Whether to take any step, a bool scalar; always given, or never.

        Raises:
            CannotCompileError: If it cannot be compiled.
        """
        groups = [self._optimizer.param_groups[place] for place in self._places]
        given = [hyperparameters(group) for group in groups]
        rule = self._rules.rule
        self._take(given if rule is None else [*given, list(rule.numbers)])
        if clip_norm is not None and clip_norm != self._bound[0]:
            self._bound = (clip_norm, torch.full((), clip_norm, device=self._device))
        call = self._graph.again if again else self._graph
        return call(self._states, self._hyper, self._bound[1], is_finite, batches, rows)

    @property
    def _device(self) -> torch.device:
        return self._flats[0].parameters.device

    def _take(self, given: list[list[Any]]) -> None:
        """Copy changed hyperparameters to the device without waiting for it."""
        if not self._hyper:
            self._hyper = [
                torch.empty(len(own), dtype=torch.float64, device=self._device) for own in given
            ]
            self._given = [[None] * len(own) for own in given]
        for values, before, now in zip(self._hyper, self._given, given, strict=True):
            for place, number in enumerate(now):
                if torch.is_tensor(number):
                    values[place].copy_(number)
                elif number != before[place]:
                    values[place].fill_(number)
                before[place] = number

    def _run(
        self,
        states: list[AdamState],
        hyper: list[torch.Tensor],
        bound: torch.Tensor,
        goes_on: torch.Tensor | None,
        batches: Sequence[Entries],
        rows: Sequence[torch.Tensor],
    ) -> list[StepOutcome]:
        if rows:
            batches = [{key: x[row] for key, x in batches[0].items()} for row in rows]
        now: Sequence[AdamState] = states
        results, rate, rule = [], None, self._rules.rule
        if rule is not None:
            *hyper, numbers = hyper
        for entries in batches:
            flats = [state.parameters for state in now]
            grads, out = self._gradient(flats, entries)
            grads, norm = self._clipped(grads, bound)
            goes_on = self._still(goes_on, out, norm)
            if rule is not None:
                rate = rule.rate(out, hyper[0][0], numbers.unbind())
                hyper = [torch.cat([rate[None], values[1:]]) for values in hyper]
            then = [
                adam_step(state, grad, values, decoupled)
                for state, grad, values, decoupled in zip(
                    now, grads, hyper, self._decoupled, strict=True
                )
            ]
            now = then if goes_on is None else _chosen(goes_on, then, now)
            results.append(StepOutcome(out, norm, rate))
        for state, new in zip(states, now, strict=True):
            for value, after in zip(state, new, strict=True):
                value.copy_(after)
        return results

    def _gradient(
        self, flats: Sequence[torch.Tensor], entries: Entries
    ) -> tuple[Sequence[torch.Tensor], Losses]:
        def total(*values: torch.Tensor) -> tuple[torch.Tensor | None, Losses]:
            parameters = {}
            for place, value in enumerate(values):
                pieces = torch.split(value, self._sizes[place])
                shapes = self._shapes[place]
                for name, piece, shape in zip(self._names[place], pieces, shapes, strict=True):
                    parameters[name] = piece.view(shape)
            out = self._loss(parameters, entries)
            return self._objective.total(out), {k: v.detach() for k, v in out.items()}

        return torch.func.grad(total, tuple(range(len(flats))), has_aux=True)(*flats)

    def _clipped(
        self, grads: Sequence[torch.Tensor], bound: torch.Tensor
    ) -> tuple[Sequence[torch.Tensor], torch.Tensor | None]:
        rules, norm = self._rules, None
        if rules.norm or rules.clips == "norm":
            norm = torch.stack([grad.norm() for grad in grads]).norm()
        if rules.clips == "value":
            grads = [grad.clamp(-bound, bound) for grad in grads]
        elif rules.clips == "norm" and norm is not None:
            scale = (bound / (norm + 1e-6)).clamp_max(1.0)
            grads = [grad * scale for grad in grads]
        return grads, norm

    def _still(
        self, before: torch.Tensor | None, losses: Losses, norm: torch.Tensor | None
    ) -> torch.Tensor | None:
        """Return whether this step is taken; ``None`` for always."""
        values = (
            [v for key, v in losses.items() if is_loss(key)] if self._rules.finite_losses else []
        )
        if norm is not None and self._rules.finite_norm:
            values.append(norm)
        for value in values:
            finite = value.isfinite().all()
            before = finite if before is None else before & finite
        return before


def _chosen(
    yes: torch.Tensor, then: Sequence[AdamState], now: Sequence[AdamState]
) -> list[AdamState]:
    return [
        AdamState(*(torch.where(yes, new, old) for new, old in zip(after, before, strict=True)))
        for after, before in zip(then, now, strict=True)
    ]


Grads = tuple[Sequence[nn.Parameter], Sequence[torch.Tensor]]


class GradientGraph:
    """Losses, and the gradient of each of several objectives, as one compiled graph.

    Args:
        loss: The loss.
        objectives: What the optimizers minimize, each by its own parameters alone.
        reached: What they depend on.
        say: Called with a line before and after compiling.
    """

    def __init__(
        self,
        loss: FunctionalLoss,
        objectives: Sequence[Objective],
        reached: Reached,
        say: Callable[[str], None] = quiet,
    ) -> None:
        self._loss = loss
        self._objectives = objectives
        self._reached = reached
        self._parameters = [p for own in reached.parameters for p in own]
        self._names = [loss.names[parameter] for parameter in self._parameters]
        self._graph = Graph(self._gradients, "the losses and their gradient", say, module=loss.body)

    def __call__(self, entries: Entries) -> tuple[Losses, list[Grads]]:
        """Return the losses of a batch, and by objective its parameters and their gradients.

        Raises:
            CannotCompileError: If it cannot be compiled.
        """
        out, grads = self._graph([p.detach() for p in self._parameters], entries)
        return dict(out), list(zip(self._reached.parameters, grads, strict=True))

    def _gradients(
        self, parameters: list[torch.Tensor], entries: Entries
    ) -> tuple[Losses, list[list[torch.Tensor]]]:
        def totals(*values: torch.Tensor) -> tuple[list[torch.Tensor], Losses]:
            out = self._loss(dict(zip(self._names, values, strict=True)), entries)
            found = [objective.total(out) for objective in self._objectives]
            by_own = zip(found, self._reached.parameters, strict=True)
            kept = [total for total, own in by_own if total is not None and own]
            return kept, {key: value.detach() for key, value in out.items()}

        def summed(*values: torch.Tensor) -> tuple[torch.Tensor, Losses]:
            found, out = totals(*values)
            total = found[0]
            for other in found[1:]:
                total = total + other
            return total, out

        if self._reached.apart:
            places = tuple(range(len(parameters)))
            grads, out = torch.func.grad(summed, places, has_aux=True)(*parameters)
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

    def _by_objective(
        self, parameters: Sequence[torch.Tensor], grads: Sequence[Sequence[torch.Tensor]]
    ) -> list[list[torch.Tensor]]:
        """Select each objective's own gradients, with the strides of their parameters."""
        out, first = [], 0
        for mine, own in zip(grads, self._reached.parameters, strict=True):
            end = first + len(own)
            out.append(list(map(laid_out_as, parameters[first:end], mine[first:end])))
            first = end
        return out
