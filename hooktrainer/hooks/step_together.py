"""Take the optimizer steps of several learners at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..graphs.batched_gradient import BatchedGradient
from ..graphs.compiling import CannotCompileError, quiet
from ..graphs.functional_loss import FunctionalLoss, Losses
from ..graphs.gradient_graph import Gradient, Grads
from ..graphs.independent import why_not_together
from ..graphs.objective import Objective, Reached, reached
from ..graphs.random_calls import RandomCall
from ..graphs.room import Room
from ..graphs.side_by_side import SideBySide
from ..graphs.step_graph import StepOutcome, StepRules
from ..graphs.together import (
    Brought,
    GradientsTogether,
    StepsTogether,
    draws_of,
    spare_rows_for,
)
from ..loop.company import STEPPING, Company
from ..objectives.common import Entries
from ..objectives.gae import GAE
from ..optim import FlatAdam
from .compiled_step import CompiledStep, first_of

if TYPE_CHECKING:
    from ..loop.loop import Loop


# Requests after which a group that has not met may be one of which some have ended.
_LONG = 16


class StepTogether(CompiledStep):
    """Takes optimizer steps together with those of the loops beside this one.

    How much is taken together depends on the hooks between, as for `CompiledStep`. What cannot be
    is computed by each loop itself, and the reason is said once.

    Args:
        steps: How many steps are taken at once where they can be.
        compiled: Whether they are compiled.
    """

    _computes_rates = False  # each learner has a rule of its own

    def __init__(self, steps: int = 4, *, compiled: bool = False) -> None:
        super().__init__(steps)
        self.compiled = compiled
        self._company: Company | None = None
        self._draws: dict[Hashable, list[RandomCall]] = {}

    def register(self, trainer: Loop, name: str = "step_together") -> None:
        """Take the place of the computation when training starts, if there are others."""
        super().register(trainer, name)

    def join(self, company: Company) -> None:
        """Take the steps together with these."""
        self._company = company
        self._say = company.say if self.compiled else quiet

    def on_train_start(self, trainer: Loop) -> None:
        """Take the place of the computation, if there are others."""
        if self._company is None:
            return
        if (why := _against(trainer.loss_module)) is None:
            super().on_train_start(trainer)
        else:
            self._company.say(f"each seed computes its own optimizer steps, since {why}.")

    def _compile_advantages(self, gae: GAE) -> None:
        """Leave them to each loop, which needs them once in a batch."""

    def _gradients(
        self, key: Hashable, loss: FunctionalLoss, entries: Entries
    ) -> tuple[Losses, list[Grads]]:
        optimizers = [hook.optimizer for hook in self._hooks]
        with self._brought(key, loss, [entries], []) as brought:
            return self._ask(_Request(key, loss, self._objectives, optimizers, brought))

    def _taken(
        self,
        key: Hashable,
        loss: FunctionalLoss,
        entries: Sequence[Entries],
        rows: Sequence[torch.Tensor],
        rules: StepRules,
    ) -> list[StepOutcome]:
        optimizers, clip_norm = [self._hooks[0].optimizer], self.trainer.clip_norm
        with self._brought(key, loss, entries, rows) as brought:
            return self._ask(
                _Request(key, loss, self._objectives, optimizers, brought, rules, clip_norm)
            )

    def _refused(self, loss: str, why: CannotCompileError) -> None:
        assert self._company is not None
        done = "compiled for" if self.compiled else "computed for"
        self._company.say(f"{loss} cannot be {done} all seeds, and is computed by each: {why}")

    @contextmanager
    def _brought(
        self,
        key: Hashable,
        loss: FunctionalLoss,
        entries: Sequence[Entries],
        rows: Sequence[torch.Tensor],
    ) -> Iterator[Brought]:
        """What this learner brings; if it is refused, nothing has been drawn."""
        if key not in self._draws:
            self._draws[key] = draws_of(loss, first_of(entries, rows))
        draws = self._draws[key] * (len(rows) or len(entries))
        before = torch.get_rng_state() if draws else None
        try:
            yield Brought(entries, rows, [draw() for draw in draws])
        except CannotCompileError:
            if before is not None:
                torch.set_rng_state(before)
            raise

    def _ask(self, request: _Request) -> Any:
        assert self._company is not None
        make = partial(_StepServer, self.compiled, self._company.say)
        server = self._company.server((_StepServer, self.compiled), make)
        return self._company.ask(server, request)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_company": None, "_draws": {}, "_say": quiet}


def _against(loss: Any) -> str | None:
    """Why a loss cannot be computed for several learners at once; `None` if it can."""
    if not isinstance(loss, nn.Module):
        return f"the loss is a {type(loss).__name__}, not a torch.nn.Module"
    return why_not_together(loss)


@dataclass(eq=False)
class _Request:
    """What a loop asks for: steps, or without rules losses and gradients."""

    key: Hashable
    loss: FunctionalLoss
    objectives: Sequence[Objective]
    optimizers: Sequence[torch.optim.Optimizer]
    brought: Brought
    rules: StepRules | None = None
    clip_norm: float | None = None


@dataclass(frozen=True)
class _Pattern:
    """What is computed for learners that are alike.

    Attributes:
        of: The loss of the one of them it is made from.
        reached: What that depends on.
        gradient: Its computation.
    """

    of: FunctionalLoss
    reached: Reached
    gradient: BatchedGradient


class _StepServer:
    """Computes the steps of several loops."""

    rank = STEPPING

    def __init__(self, compiled: bool, say: Callable[[str], None]) -> None:
        self._compiled, self._say = compiled, say
        self._groups: dict[tuple[int, ...], _Group] = {}  # by the losses, which they keep alive
        self._served = 0
        self._patterns: dict[tuple[Hashable, int], _Pattern] = {}  # by keys and rows
        self._rooms: list[Room] = []

    def serve(self, requests: Sequence[_Request]) -> Sequence[Any]:
        """Steps, or gradients, of those that ask for the same, at once."""
        kinds: dict[Hashable, list[int]] = {}
        for place, request in enumerate(requests):
            kinds.setdefault((request.key, request.clip_norm), []).append(place)
        answers: list[Any] = [None] * len(requests)
        for places in kinds.values():
            asked = [requests[place] for place in places]
            for place, answer in zip(places, self._of(asked), strict=True):
                answers[place] = answer
        return answers

    def room(self, needed: int) -> Room:
        """That of a group which needs so many rows: the smallest there is, or another one."""
        fitting = [room for room in self._rooms if room.fits(needed)]
        if not fitting:
            fitting = [Room(needed, self._compiled)]
            self._rooms += fitting
        return min(fitting, key=lambda room: room.rows)

    def pattern(self, asked: Sequence[_Request], rows: int) -> _Pattern:
        """What is computed for these; made anew when the learner it is made from has ended."""
        first, losses = asked[0], {id(request.loss) for request in asked}
        found = self._patterns.get((first.key, rows))
        if found is None or id(found.of) not in losses:
            entries = first_of(first.brought.entries, first.brought.rows)
            on = reached(first.loss, entries, first.objectives)
            one = Gradient(first.loss, first.objectives, on)
            gradient = BatchedGradient(one, on, self._compiled, self._say)
            found = self._patterns[first.key, rows] = _Pattern(first.loss, on, gradient)
        return found

    def _of(self, asked: Sequence[_Request]) -> Sequence[Any]:
        who = tuple(id(request.loss) for request in asked)
        group = self._groups.get(who)
        if group is None:
            group = self._groups[who] = _Group(asked, self)
        self._served += 1
        group.met = self._served
        if self._served % _LONG == 0:
            self._forget()
        try:
            return group(asked)
        except CannotCompileError as error:
            return [CannotCompileError(*error.args) for _ in asked]

    def _forget(self) -> None:
        """Let go of groups that have not met for long, since of some the loops have ended."""
        old = [who for who, group in self._groups.items() if group.met < self._served - _LONG]
        for who in old:
            self._groups.pop(who).leave()


class _Group:
    """Loops that take steps together.

    Attributes:
        met: The number of the request at which they did so last.
    """

    def __init__(self, members: Sequence[_Request], server: _StepServer) -> None:
        self._losses = [member.loss for member in members]
        self._optimizers = [member.optimizers for member in members]
        self._server = server
        self.met = 0
        self._needed = 0  # rows
        self._graphs: dict[Hashable, GradientsTogether] = {}
        self._beside: SideBySide | None = None

    def __call__(self, asked: Sequence[_Request]) -> Sequence[Any]:
        start = perf_counter()
        first = asked[0]
        self._needed = max(self._needed, len(asked) + spare_rows_for(first.brought))
        room = self._server.room(self._needed)
        if self._beside is None or self._beside.rows != room.rows:
            self._beside = SideBySide(self._losses, self._optimizers, room.rows)
            self._graphs.clear()
        graph = self._graphs.get(first.key)
        if graph is None:
            graph = self._graphs[first.key] = self._graph(asked, self._beside)
        brought = [request.brought for request in asked]
        if isinstance(graph, StepsTogether):
            answers: Sequence[Any] = graph.steps(brought, first.clip_norm)
        else:
            answers = graph(brought)
        room.used(self._needed, perf_counter() - start)
        return answers

    def leave(self) -> None:
        """Leave each loop its own memory, for it will come back no more."""
        if self._beside is not None:
            self._beside.leave()

    def _graph(self, asked: Sequence[_Request], beside: SideBySide) -> GradientsTogether:
        pattern, rules = self._server.pattern(asked, beside.rows), asked[0].rules
        on = [_likewise(pattern, request.loss) for request in asked]
        if rules is None:
            return GradientsTogether(pattern.gradient, on, beside)
        flat = [one for (one,) in self._optimizers if isinstance(one, FlatAdam)]
        return StepsTogether(pattern.gradient, on, beside, flat, rules)


def _likewise(pattern: _Pattern, loss: FunctionalLoss) -> Reached:
    """What the loss of another learner depends on, which is alike."""
    place = {name: parameter for parameter, name in loss.names.items()}
    names, on = pattern.of.names, pattern.reached
    return Reached([[place[names[p]] for p in own] for own in on.parameters], on.apart)
