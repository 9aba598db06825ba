"""Losses, gradients and optimizer steps of several learners at once.

Their networks are one batch of networks: every operation of a loss and of its gradient runs over
the learners as over the matrices of a batched product. What each learner computes does not depend,
bit for bit, on how many others there are and who they are. Kernels of the CPU compute the last
elements of a tensor, fewer than two vector registers hold, by other code than those before. So
behind the last learner its first one is computed again, as often as it takes for these to be
nobody's.

What follows on the gradient is the arithmetic of each learner's own optimizer, which is bound by
memory: one call of Adam's kernel goes through one learner after another, each of which a cache
holds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from ..objectives.common import Entries
from ..optim import FlatAdam
from ..optim.adam import hyperparameters
from ..optim.flat_adam import step_flat
from .batched_gradient import BatchedGradient
from .functional_loss import FunctionalLoss, Losses
from .gradient_graph import Grads
from .objective import Reached
from .random_calls import NotedDraws, RandomCall
from .side_by_side import SideBySide, spare_rows
from .step_graph import StepOutcome, StepRules, groups_that_move

T = TypeVar("T")


class Brought(NamedTuple):
    """What one learner brings to some steps.

    Attributes:
        entries: As `StepGraph` is given them.
        rows: Likewise.
        numbers: What its loss would draw.
    """

    entries: Sequence[Entries]
    rows: Sequence[torch.Tensor]
    numbers: Sequence[torch.Tensor]


class GradientsTogether:
    """What `GradientGraph` does, for several learners at once.

    Args:
        gradient: What computes them, of learners that are alike.
        reached: For each learner what its objectives depend on.
        beside: Where the learners' tensors lie.
    """

    def __init__(
        self, gradient: BatchedGradient, reached: Sequence[Reached], beside: SideBySide
    ) -> None:
        self._number = len(reached)
        self._gradient = gradient
        self._reached = reached
        self._beside = beside

    def __call__(self, brought: Sequence[Brought]) -> list[tuple[Losses, list[Grads]]]:
        """Compute losses and gradients.

        Args:
            brought: For each learner what it brings.

        Returns:
            For each what `GradientGraph` returns.
        """
        tensors = self._beside.gather()
        batch = [own.entries[0] for own in brought]
        out, grads = self._gradient(
            tensors, self._stacked(batch), self._numbers([own.numbers for own in brought])
        )
        losses = _unbind(out, self._number)
        # Laid out as the parameters: torch's fused optimizers look at nothing but the memory.
        by_objective = [[grad.contiguous().unbind(0) for grad in own] for own in grads]
        return [
            (
                losses[k],
                [
                    (own, [rows[k] for rows in mine])
                    for own, mine in zip(self._reached[k].parameters, by_objective, strict=True)
                ],
            )
            for k in range(self._number)
        ]

    def _stacked(self, batch: Sequence[Entries]) -> Entries:
        rows = self._beside.filled(batch)
        return {key: torch.stack([own[key] for own in rows]) for key in batch[0]}

    def _numbers(self, numbers: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
        rows = self._beside.filled(numbers)
        return [torch.stack(same) for same in zip(*rows, strict=True)]


class StepsTogether(GradientsTogether):
    """What `StepGraph` does, for several learners at once.

    Args:
        gradient: What computes losses and gradients, of learners that are alike.
        reached: For each learner what its loss depends on.
        beside: Where the learners' tensors lie.
        optimizers: What takes their steps.
        rules: How these are taken.

    Raises:
        CannotCompileError: If only some parameters of a group have a gradient.
    """

    def __init__(
        self,
        gradient: BatchedGradient,
        reached: Sequence[Reached],
        beside: SideBySide,
        optimizers: Sequence[FlatAdam],
        rules: StepRules,
    ) -> None:
        super().__init__(gradient, reached, beside)
        self._rules = rules
        self._optimizers = optimizers
        place = {parameter: i for i, parameter in enumerate(reached[0].parameters[0])}
        self._groups = groups_that_move(optimizers[0], place)
        flats = [optimizers[0].flat_groups[number] for number in self._groups]
        self._pieces = [[place[view] for view in flat.views] for flat in flats]

    def steps(self, brought: Sequence[Brought], clip_norm: float | None) -> list[list[StepOutcome]]:
        """Take some steps.

        Args:
            brought: For each learner what it brings.
            clip_norm: The bound of what is clipped.

        Returns:
            For each learner and step the losses, and the norm of the gradient.
        """
        results: list[list[StepOutcome]] = [[] for _ in brought]
        goes_on = [True] * len(brought)
        tensors = self._beside.gather()
        for step, (entries, numbers) in enumerate(self._batches(brought)):
            if step:
                self._beside.repeat()
            out, (grads,) = self._gradient(tensors, entries, numbers, again=step > 0)
            flats = self._flat(grads)
            norm = self._clip(flats, clip_norm)
            goes_on = [a and b for a, b in zip(goes_on, self._finite(out, norm), strict=True)]
            self._take([k for k, still in enumerate(goes_on) if still], flats)
            norms = [None] * len(brought) if norm is None else norm.unbind(0)[: len(brought)]
            for own, losses, mine in zip(results, _unbind(out, self._number), norms, strict=True):
                own.append(StepOutcome(losses, mine))
        return results

    def _batches(self, brought: Sequence[Brought]) -> Iterator[tuple[Entries, list[torch.Tensor]]]:
        """The batch of each step, and what its loss would draw, ``[rows, ...]`` each."""
        first = brought[0]
        steps = len(first.rows) or len(first.entries)
        draws = len(first.numbers) // steps
        whole = self._stacked([own.entries[0] for own in brought]) if first.rows else {}
        for step in range(steps):
            numbers = [own.numbers[step * draws : (step + 1) * draws] for own in brought]
            if first.rows:
                entries = _parts(
                    whole,
                    self._beside.filled([own.rows[step] for own in brought]),
                )
            else:
                entries = self._stacked([own.entries[step] for own in brought])
            yield entries, self._numbers(numbers)

    def _flat(self, grads: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The gradients of each group, ``[rows, parameters of the group]``."""
        rows = len(grads[0])
        return [
            torch.cat([grads[place].reshape(rows, -1) for place in pieces], 1)
            for pieces in self._pieces
        ]

    def _clip(self, flats: Sequence[torch.Tensor], bound: float | None) -> torch.Tensor | None:
        """Bound the gradients; returns their norms, ``[rows]``."""
        rules, norm = self._rules, None
        if rules.norm or rules.clips == "norm":
            norms = [torch.linalg.vector_norm(flat, dim=1) for flat in flats]
            norm = norms[0] if len(norms) == 1 else torch.stack(norms, 1).norm(dim=1)
        if rules.clips == "value":
            assert bound is not None
            for flat in flats:
                flat.clamp_(-bound, bound)
        elif rules.clips == "norm" and norm is not None:
            assert bound is not None
            scale = (bound / (norm + 1e-6)).clamp_max_(1.0)
            for grads in flats:
                grads.mul_(scale[:, None])
        return norm

    def _finite(self, out: Losses, norm: torch.Tensor | None) -> list[bool]:
        """Whether each learner's step is taken."""
        looked_at = self._rules.looked_at(out, norm)
        if not looked_at:
            return [True] * self._number
        finite = [value[: self._number].isfinite().reshape(self._number, -1) for value in looked_at]
        return torch.cat(finite, 1).all(1).tolist()

    def _take(self, learners: Sequence[int], flats: Sequence[torch.Tensor]) -> None:
        """Take the step of some learners: of those with the same hyperparameters in one call."""
        for number, grads in zip(self._groups, flats, strict=True):
            alike: dict[Hashable, list[int]] = {}
            for k in learners:
                group = self._optimizers[k].param_groups[number]
                hyper = (group["decoupled_weight_decay"], *hyperparameters(group))
                alike.setdefault(hyper, []).append(k)
            rows = grads.unbind(0)
            for mine in alike.values():
                step_flat(
                    self._optimizers[mine[0]].param_groups[number],
                    [self._optimizers[k].flat_groups[number] for k in mine],
                    [rows[k] for k in mine],
                )


def draws_of(loss: FunctionalLoss, entries: Entries) -> list[RandomCall]:
    """What a loss draws in a call, by computing it once; no random number is used up.

    Raises:
        CannotCompileError: If what it draws depends on other numbers.
    """
    with torch.random.fork_rng([]), torch.no_grad(), NotedDraws() as recording:
        loss({name: parameter for parameter, name in loss.names.items()}, entries)
    return recording.draws


def spare_rows_for(brought: Brought) -> int:
    """How many times the first learner is computed again, for batches of a size."""
    first = brought.rows[0] if brought.rows else next(iter(brought.entries[0].values()))
    return spare_rows(first.shape[0])


def _parts(whole: Entries, rows: Sequence[torch.Tensor]) -> Entries:
    """Of entries ``[learners, N, ...]`` for each learner these rows, ``[learners, rows, ...]``."""
    index = torch.stack(list(rows))
    size = next(iter(whole.values())).shape[1]
    flat = (index + torch.arange(len(rows))[:, None] * size).flatten()
    return {
        key: x.flatten(0, 1).index_select(0, flat).view(*index.shape, *x.shape[2:])
        for key, x in whole.items()
    }


def _unbind(out: Mapping[Any, torch.Tensor], number: int) -> list[Losses]:
    rows = {key: value.unbind(0) for key, value in out.items()}
    return [{key: own[k] for key, own in rows.items()} for k in range(number)]
