"""`StepGraph`: whole optimizer steps, from the losses to the new parameters, as one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from ..base.tensordicts import is_loss, laid_out_as, total_loss
from ..objectives.common import Entries
from ..optim import FlatAdam
from ..optim.flat_adam import AdamState, adam_step, hyperparameters
from .compiling import CannotCompileError, Graph
from .functional_loss import FunctionalLoss, Losses


class StepOutcome(NamedTuple):
    """Losses of a step, the gradient's norm before clipping and the learning rate, if computed."""

    losses: Losses
    norm: torch.Tensor
    rate: torch.Tensor | None = None


@dataclass(frozen=True)
class StepRules:
    """The settings of a step.

    Attributes:
        clips: What is bounded: the gradient's ``"norm"``, each ``"value"``, or ``None``.
        finite_losses: Whether a NaN or infinite loss prevents the step, as such a norm does.
        rule: Computes the learning rate, such as a `hooktrainer.KLAdaptiveLR`; ``None`` for the
            optimizer's own.
    """

    clips: str | None
    finite_losses: bool = True
    rule: Any = None


class StepGraph:
    """Losses, gradient, clipping and `FlatAdam`'s step of one or several batches as one graph.

    It equals the eager computation to rounding. After a step that is not taken because of a value
    that is NaN or infinite, no later one of the graph is taken.

    Args:
        loss: The loss.
        optimizer: Takes the steps. A group without any gradient makes none.
        rules: How steps are taken.
    """

    not_in_graphs: ClassVar = frozenset(  # but for its arguments
        ("_optimizer", "_states", "_given", "_hyper", "_bound", "_graph")
    )

    def __init__(self, loss: FunctionalLoss, optimizer: FlatAdam, rules: StepRules) -> None:
        self._loss = loss
        self._optimizer = optimizer
        self._rules = rules
        flats, groups = optimizer.flat_groups, optimizer.param_groups
        self._states = [flat.state for flat in flats]
        self._device = self._states[0].parameters.device
        if self._device.type == "cuda":  # a CUDA graph changes them where they are
            for state in self._states:
                for value in state:
                    torch._dynamo.mark_static_address(value, guard=False)
        self._parameters = tuple(
            tuple((loss.names.get(view), view.shape) for view in flat.views) for flat in flats
        )
        self._decoupled = tuple(bool(group["decoupled_weight_decay"]) for group in groups)
        self._given: list[list[Any]] = []
        self._hyper: list[torch.Tensor] = []
        self._bound = (0.0, torch.zeros((), device=self._device))
        self._graph = Graph(self._run, "the optimizer step")

    def __call__(
        self,
        batches: Sequence[Entries],
        clip_norm: float | None,
        rows: Sequence[torch.Tensor] = (),
        is_finite: torch.Tensor | None = None,
    ) -> list[StepOutcome]:
        """Take a step for each batch.

        Args:
            batches: The entries of each; with ``rows`` those of one batch that all are parts of.
            clip_norm: The bound of what is clipped.
            rows: Indices of the rows of each, int64.
            is_finite: Whether to take any step, a bool scalar; always given, or never.

        Raises:
            CannotCompileError: If it cannot be compiled, or only some parameters of a group have a
                gradient.
        """
        given = [hyperparameters(group) for group in self._optimizer.param_groups]
        rule = self._rules.rule
        self._set_hyperparameters(given if rule is None else [*given, list(rule.numbers)])
        if clip_norm is not None and clip_norm != self._bound[0]:
            self._bound = (clip_norm, torch.full((), clip_norm, device=self._device))
        return self._graph(self._states, self._hyper, self._bound[1], is_finite, batches, rows)

    def _set_hyperparameters(self, given: list[list[Any]]) -> None:
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
        is_finite: torch.Tensor | None,
        batches: Sequence[Entries],
        rows: Sequence[torch.Tensor],
    ) -> list[StepOutcome]:
        if rows:
            batches = [{key: x[row] for key, x in batches[0].items()} for row in rows]
        now = states
        results, rate, rule = [], None, self._rules.rule
        if rule is not None:
            *hyper, numbers = hyper
        for entries in batches:
            grads, out = self._gradient([state.parameters for state in now], entries)
            moved = [place for place, grad in enumerate(grads) if grad is not None]
            clipped, norm = self._clipped([grad for grad in grads if grad is not None], bound)
            is_finite = self._all_finite(is_finite, out, norm)
            if rule is not None:
                rate = rule.rate(out, hyper[0][0], numbers.unbind())
                hyper = [torch.cat([rate[None], values[1:]]) for values in hyper]
            before, now = now, [*now]
            for place, grad in zip(moved, clipped, strict=True):
                then = adam_step(before[place], grad, hyper[place], self._decoupled[place])
                now[place] = _where(is_finite, then, before[place])
            results.append(StepOutcome(out, norm, rate))
        for state, new in zip(states, now, strict=True):
            for value, after in zip(state, new, strict=True):
                if value is not after:
                    value.copy_(after)
        return results

    def _gradient(
        self, flats: Sequence[torch.Tensor], entries: Entries
    ) -> tuple[list[torch.Tensor | None], Losses]:
        """Return the flat gradient of each group, and the losses."""
        leaves: list[torch.Tensor] = []
        named: dict[str, torch.Tensor] = {}
        for flat, own in zip(flats, self._parameters, strict=True):
            pieces = torch.split(flat, [shape.numel() for _, shape in own])
            for piece, (name, shape) in zip(pieces, own, strict=True):
                leaves.append(piece.view(shape))
                if name is not None:
                    named[name] = leaves[-1]
        (grads,), out = _differentiated(self._loss, named, entries, [(leaves, None)])
        following = iter(grads)
        flat_grads: list[torch.Tensor | None] = []
        for own in self._parameters:
            parts = [grad.reshape(-1) for grad in islice(following, len(own)) if grad is not None]
            if parts and len(parts) < len(own):
                raise CannotCompileError("only some parameters of a FlatAdam group have a gradient")
            flat_grads.append(torch.cat(parts) if parts else None)
        return flat_grads, out

    def _clipped(
        self, grads: Sequence[torch.Tensor], bound: torch.Tensor
    ) -> tuple[Sequence[torch.Tensor], torch.Tensor]:
        norm = torch.stack([grad.norm() for grad in grads]).norm()
        if self._rules.clips == "value":
            grads = [grad.clamp(-bound, bound) for grad in grads]
        elif self._rules.clips == "norm":
            scale = (bound / (norm + 1e-6)).clamp_max(1.0)
            grads = [grad * scale for grad in grads]
        return grads, norm

    def _all_finite(
        self, before: torch.Tensor | None, losses: Losses, norm: torch.Tensor
    ) -> torch.Tensor:
        """Return whether this step is taken."""
        finite = norm.isfinite().all()
        for key, value in losses.items() if self._rules.finite_losses else ():
            if is_loss(key):
                finite = finite & value.isfinite().all()
        return finite if before is None else before & finite


def _where(yes: torch.Tensor, then: AdamState, now: AdamState) -> AdamState:
    return AdamState(*(torch.where(yes, new, old) for new, old in zip(then, now, strict=True)))


Objective = tuple[Sequence[Any], Sequence[str] | None]
"""The parameters of one optimizer, and the keys of its losses; ``None`` for all losses."""


def _differentiated(
    loss: FunctionalLoss,
    parameters: Mapping[str, torch.Tensor],
    entries: Entries,
    objectives: Sequence[Objective],
) -> tuple[list[list[torch.Tensor | None]], Losses]:
    """Return the gradient of each objective by its parameters, and the losses.

    A gradient is ``None`` where a parameter has none.
    """
    gradients: list[list[torch.Tensor | None]] = []
    with torch.enable_grad():
        for parameter in parameters.values():
            parameter.requires_grad_()
        constants = {name: parameters[name].detach() for name in loss.frozen if name in parameters}
        out = loss({**parameters, **constants}, entries)
        for own, components in objectives:
            total = total_loss(out, components)
            if total is None or not total.requires_grad:
                gradients.append([None] * len(own))
            else:
                grads = torch.autograd.grad(total, own, retain_graph=True, allow_unused=True)
                gradients.append([*grads])
    return gradients, {key: value.detach() for key, value in out.items()}


Grads = tuple[Sequence[nn.Parameter], Sequence[torch.Tensor]]


class GradientGraph:
    """Losses, and the gradient of each of several objectives, as one compiled graph.

    Args:
        loss: The loss.
        objectives: What the optimizers minimize, each by its own parameters alone.

    Raises:
        CannotCompileError: If a parameter is not one of the loss.
    """

    not_in_graphs: ClassVar = frozenset(("_graph", "_objectives"))

    def __init__(self, loss: FunctionalLoss, objectives: Sequence[Objective]) -> None:
        if any(parameter not in loss.names for own, _ in objectives for parameter in own):
            raise CannotCompileError("an optimizer has parameters that are not the loss's")
        self._loss = loss
        self._objectives = objectives
        self._minimized = tuple(
            (tuple(loss.names[parameter] for parameter in own), components)
            for own, components in objectives
        )
        self._graph = Graph(self._gradients, "the losses and their gradient")

    def __call__(self, entries: Entries) -> tuple[Losses, list[Grads]]:
        """Return the losses of a batch, and by objective its parameters and their gradients.

        Raises:
            CannotCompileError: If it cannot be compiled.
        """
        parameters = {self._loss.names[p]: p.detach() for own, _ in self._objectives for p in own}
        out, gradients = self._graph(parameters, entries)
        found: list[Grads] = []
        for (own, _), grads in zip(self._objectives, gradients, strict=True):
            pairs = [(p, g) for p, g in zip(own, grads, strict=True) if g is not None]
            found.append(([p for p, _ in pairs], [g for _, g in pairs]))
        return out, found

    def _gradients(
        self, parameters: dict[str, torch.Tensor], entries: Entries
    ) -> tuple[Losses, list[list[torch.Tensor | None]]]:
        leaves = {name: value.detach() for name, value in parameters.items()}
        objectives = [([leaves[name] for name in own], keys) for own, keys in self._minimized]
        gradients, out = _differentiated(self._loss, leaves, entries, objectives)
        for (own, _), grads in zip(objectives, gradients, strict=True):
            for place, (leaf, grad) in enumerate(zip(own, grads, strict=True)):
                grads[place] = None if grad is None else laid_out_as(leaf, grad)
        return out, gradients
