"""Optimizer steps of several learners at once: their networks are one batch of networks.

What each learner computes does not depend, bit for bit, on how many others there are and who they
are: every operation runs over the learners as over the matrices of a batched product. Kernels of
the CPU compute the last elements of a tensor, fewer than two vector registers hold, by other code
than those before. So behind the last learner its first one is computed again, as often as it takes
for these to be nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from ..objectives.common import Entries
from ..optim import FlatAdam
from ..optim.adam import AdamState, hyperparameters
from .compiling import Graph, quiet
from .functional_loss import FunctionalLoss, Losses
from .gradient_graph import GradientGraph, Grads
from .objective import Objective, Reached
from .products import AlignedProducts
from .random_calls import GivenDraws, NotedDraws, RandomCall
from .step_graph import StepGraph, StepRules

T = TypeVar("T")
Step = tuple[Losses, torch.Tensor | None]

# Floats in two vector registers of 512 bits.
_REGISTERS = 32
_NORM = ("norm of the gradient",)


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


class SideBySide:
    """Optimizers whose parameters and moments lie side by side, in rows.

    Args:
        optimizers: Alike, on one device.
        rows: How many rows there are, more than optimizers. Those behind are the first one's again.
    """

    def __init__(self, optimizers: Sequence[FlatAdam], rows: int) -> None:
        self.rows = rows
        self._optimizers = optimizers
        self._arrays = []
        for flat in optimizers[0].flat_groups:
            width = -(-flat.parameters.numel() // _REGISTERS) * _REGISTERS  # each row lies alike
            wide = [flat.parameters.new_zeros(rows, width) for _ in range(3)]
            self._arrays.append(AdamState(wide[0], wide[1], wide[2], flat.steps.new_zeros(rows)))

    def gather(self) -> None:
        """Have the parameters and moments lie here, if some lie beside those of others by now."""
        first = self._arrays[0].parameters
        pairs = list(enumerate(self._optimizers))
        if all(o.flat_groups[0].parameters.data_ptr() == first[k].data_ptr() for k, o in pairs):
            return
        sizes = [flat.parameters.numel() for flat in self._optimizers[0].flat_groups]
        for row, optimizer in pairs:
            optimizer.move(
                [
                    [*(array[row, :size] for array in group[:3]), group.steps[row]]
                    for group, size in zip(self._arrays, sizes, strict=True)
                ]
            )
        for group in self._arrays:
            for array in group:
                array[len(pairs) :] = array[0]

    def states(self, places: Sequence[int], rows: int) -> list[AdamState]:
        """So many rows of some of the groups, ``[rows, ...]`` each; zeros fill them up."""
        return [AdamState(*(array[:rows] for array in self._arrays[p])) for p in places]


class StepsTogether:
    """What `StepGraph` does, for several learners at once.

    Args:
        losses: Their losses, alike.
        optimizers: What takes their steps, `SideBySide`.
        rows: Where these lie.
        reached: What the loss of the first depends on.
        rules: How steps are taken.
        compiled: Whether it is a compiled graph.
        say: Told when it is compiled.
    """

    def __init__(
        self,
        losses: Sequence[FunctionalLoss],
        optimizers: Sequence[FlatAdam],
        rows: SideBySide,
        reached: Reached,
        rules: StepRules,
        compiled: bool = False,
        say: Callable[[str], None] = quiet,
    ) -> None:
        self._number = len(losses)
        self._losses, self._optimizers = losses, optimizers
        self._rows = rows
        self._pattern = StepGraph(losses[0], optimizers[0], reached, rules)
        self._moved = {name for names in self._pattern.names for name in names}
        self._call = _graph(self._run, len(losses), compiled, say)

    def __call__(self, brought: Sequence[Brought], clip_norm: float | None) -> list[list[Step]]:
        """Take some steps.

        Args:
            brought: For each learner what it brings.
            clip_norm: The bound of what is clipped.

        Returns:
            For each learner and step the losses, and the norm of the gradient.
        """
        places, extra = self._pattern.places, spare_rows(brought[0])
        optimizers = _filled(self._optimizers, extra)
        groups = [[o.param_groups[place] for o in optimizers] for place in places]
        hyper = [
            torch.tensor([hyperparameters(group) for group in own], dtype=torch.float64)
            for own in groups
        ]
        self._rows.gather()
        results = self._call(
            self._rows.states(places, len(optimizers)),
            hyper,
            torch.tensor(0.0 if clip_norm is None else clip_norm),
            _stack(_filled(brought, extra)),
            _others(_filled(self._losses, extra), self._moved),
        )
        by_step = [_unbind(out, self._number) for out in results]
        return [[(out, out.pop(_NORM, None)) for out in own] for own in zip(*by_step, strict=True)]

    def _run(
        self,
        states: list[AdamState],
        hyper: list[torch.Tensor],
        bound: torch.Tensor,
        brought: Any,
        others: dict[str, torch.Tensor],
    ) -> list[Losses]:
        def one(states: Any, hyper: Any, brought: Any, others: Any) -> tuple[Any, list[Losses]]:
            entries, rows, numbers = brought
            with GivenDraws(numbers):
                last, results = self._pattern.steps(states, hyper, bound, entries, rows, others)
            outs = [out if norm is None else {**out, _NORM: norm} for out, norm in results]
            return [tuple(state) for state in last], outs

        last, outs = torch.func.vmap(one)(states, hyper, brought, others)
        for state, new in zip(states, last, strict=True):
            for value, then in zip(state, new, strict=True):
                value.copy_(then)
        return outs


class GradientsTogether:
    """What `GradientGraph` does, for several learners at once.

    Args:
        losses: Their losses, alike.
        objectives: For each what its optimizers minimize.
        reached: For each what these depend on.
        compiled: Whether it is a compiled graph.
        say: Told when it is compiled.
    """

    def __init__(
        self,
        losses: Sequence[FunctionalLoss],
        objectives: Sequence[Sequence[Objective]],
        reached: Sequence[Reached],
        compiled: bool = False,
        say: Callable[[str], None] = quiet,
    ) -> None:
        self._number = len(losses)
        self._losses = losses
        self._graphs = [
            GradientGraph(*each) for each in zip(losses, objectives, reached, strict=True)
        ]
        self._moved = {losses[0].names[p] for p in self._graphs[0].parameters}
        self._reached = reached
        self._call = _graph(self._run, len(losses), compiled, say)

    def __call__(self, given: Sequence[Brought]) -> list[tuple[Losses, list[Grads]]]:
        """Compute losses and gradients.

        Args:
            given: What each learner brings.

        Returns:
            For each what `GradientGraph` returns.
        """
        extra = spare_rows(given[0])
        graphs = _filled(self._graphs, extra)
        parameters = [
            torch.stack([p.detach() for p in same])
            for same in zip(*(graph.parameters for graph in graphs), strict=True)
        ]
        others = _others(_filled(self._losses, extra), self._moved)
        out, grads = self._call(parameters, _stack(_filled(given, extra)), others)
        losses = _unbind(out, self._number)
        by_objective = [[grad.unbind(0) for grad in own] for own in grads]
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

    def _run(self, parameters: Any, given: Any, others: Any) -> Any:
        def one(parameters: Any, given: Any, others: Any) -> Any:
            (entries,), _, numbers = given
            with GivenDraws(numbers):
                return self._graphs[0].gradients(parameters, entries, others)

        return torch.func.vmap(one)(parameters, given, others)


def draws_of(loss: FunctionalLoss, entries: Entries) -> list[RandomCall]:
    """What a loss draws in a call, by computing it once; no random number is used up.

    Raises:
        CannotCompileError: If what it draws depends on other numbers.
    """
    with torch.random.fork_rng([]), torch.no_grad(), NotedDraws() as recording:
        loss({name: parameter for parameter, name in loss.names.items()}, entries)
    return recording.draws


def _graph(
    run: Callable[..., T], learners: int, compiled: bool, say: Callable[[str], None]
) -> Callable[..., T]:
    if compiled:
        return Graph(run, f"the optimizer step of {learners} learners", say)
    aligned: list[bool] = []  # whether it takes aligned products, once that is known

    def call(*args: Any) -> T:
        with torch.no_grad():
            if aligned and not aligned[0]:
                return run(*args)
            with AlignedProducts() as products:
                out = run(*args)
            aligned[:] = [products.changed]
            return out

    return call


def spare_rows(brought: Brought) -> int:
    """How many times the first learner is computed again, for batches of a size."""
    first = brought.rows[0] if brought.rows else next(iter(brought.entries[0].values()))
    return -(-_REGISTERS // first.shape[0])


def _filled(learners: Sequence[T], extra: int) -> Sequence[T]:
    """The learners, and some times the first one again."""
    return [*learners, *[learners[0]] * extra]


def _stack(brought: Sequence[Brought]) -> tuple[list[Any], list[Any], list[Any]]:
    """What all learners bring, ``[learners, ...]`` each."""
    entries = [
        {key: torch.stack([each[key] for each in same]) for key in same[0]}
        for same in zip(*(own.entries for own in brought), strict=True)
    ]
    rows = [torch.stack(same) for same in zip(*(own.rows for own in brought), strict=True)]
    numbers = [torch.stack(same) for same in zip(*(own.numbers for own in brought), strict=True)]
    return entries, rows, numbers


def _others(losses: Sequence[FunctionalLoss], moved: Collection[str]) -> dict[str, torch.Tensor]:
    """Buffers, and parameters that are not moved, of all learners, ``[learners, ...]`` each."""
    tensors: list[dict[str, torch.Tensor]] = [
        {
            **loss.buffers,
            **{name: p.detach() for p, name in loss.names.items() if name not in moved},
        }
        for loss in losses
    ]
    return {name: torch.stack([own[name] for own in tensors]) for name in tensors[0]}


def _unbind(out: Mapping[Any, torch.Tensor], number: int) -> list[Losses]:
    rows = {key: value.unbind(0) for key, value in out.items()}
    return [{key: own[k] for key, own in rows.items()} for k in range(number)]
