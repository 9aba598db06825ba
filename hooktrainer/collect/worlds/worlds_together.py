"""The worlds of several learners, stepped as one larger world with all their policies at once.

What one learner is given does not depend, bit for bit, on the others: no function of a world looks
from one environment at another, the policies are `PoliciesTogether`, each learner draws its own
random numbers, and behind the last learner stands the first one again, so often that the ends of
tensors, which a CPU computes by other code, are nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, unravel_key
from tensordict.nn import set_interaction_type

from ...graphs.compiling import CannotCompileError, GraphOr
from ...graphs.room import Room
from ...graphs.side_by_side import spare_rows
from ..buffers import OutputBuffers
from .batch_parts import BatchParts, Entries, Parts, as_batch
from .compiled_steps import STEPS, CompiledSteps, WorldSteps, say_eager
from .larger_world import divided, joined
from .policies_together import PoliciesTogether
from .rollout_in_company import WorldRolloutInCompany
from .rows import Rows
from .world_buffers import WorldBuffers

Made = tuple[TensorDict, float]
"""A batch, and the seconds that it took."""


class WorldServer:
    """Makes the rollouts of several loops.

    Args:
        rank: See `hooktrainer.loop.company.Server`.
        say: Told when something is compiled.
    """

    def __init__(self, rank: int, say: Callable[[str], None]) -> None:
        self.rank = rank
        self._say = say
        self._kinds: list[_Kind] = []

    def serve(self, requests: Sequence[WorldRolloutInCompany]) -> Sequence[Made]:
        """The batches of some rollouts."""
        kinds: dict[_Kind, list[WorldRolloutInCompany]] = {}
        for rollout in requests:
            if rollout.kind is None:
                rollout.kind = self._kind_of(rollout)
            kinds.setdefault(rollout.kind, []).append(rollout)
        made: dict[WorldRolloutInCompany, Made] = {}
        for kind, rollouts in kinds.items():
            made |= zip(rollouts, kind(rollouts), strict=True)
        return [made[rollout] for rollout in requests]

    def _kind_of(self, rollout: WorldRolloutInCompany) -> _Kind:
        for kind in self._kinds:
            if rollout.is_like(kind.pattern):
                return kind
        self._kinds.append(_Kind(rollout, self._say))
        return self._kinds[-1]


class _Kind:
    """Rollouts that are alike.

    Attributes:
        pattern: One of them.
    """

    def __init__(self, pattern: WorldRolloutInCompany, say: Callable[[str], None]) -> None:
        self.pattern = pattern
        self._say = say
        self._worlds: LargerWorld | None = None

    def __call__(self, rollouts: Sequence[WorldRolloutInCompany]) -> Sequence[Made]:
        needed = len(rollouts) + spare_rows(self.pattern.world.num_envs)
        if self._worlds is None or not self._worlds.room.fits(needed):
            self._worlds = LargerWorld(self.pattern, needed, self._say)
        made = self._worlds(rollouts)
        self._worlds.room.used(needed, sum(seconds for _, seconds in made))
        return made


class LargerWorld:
    """The worlds of some learners as one.

    It keeps nothing between rollouts: where each world stands is taken from its own rollout, and
    given back to it.

    Args:
        pattern: A rollout of one of them; the others are like it.
        rows: For how many learners there is room, more than there are.
        say: Told when something is compiled.

    Attributes:
        room: These rows.
    """

    def __init__(
        self, pattern: WorldRolloutInCompany, rows: int, say: Callable[[str], None]
    ) -> None:
        self.room = Room(rows, pattern.compiles)
        self._pattern = pattern
        self._size = size = pattern.world.num_envs
        horizon, outputs = pattern.horizon, pattern.outputs
        leaves, device = pattern.buffers.leaves, pattern.world.device
        self._policies = PoliciesTogether(pattern.policy, pattern.draws, rows, size)
        self._numbers = self._policies.numbers(horizon)
        self._draws = [
            [(draw, own) for draw, own in zip(pattern.draws, step, strict=True)]
            for step in zip(*(x.unbind(0) for x in self._numbers), strict=True)
        ]
        self._buffers = WorldBuffers(leaves, rows * size, horizon, device)
        self._samples = OutputBuffers(rows * size, horizon)
        self._samples.allocate(
            {key: x.new_zeros(rows * size, *x.shape[2:]) for key, x in outputs.items()}
        )
        self._spans: list[tuple[Rows, list[torch.Tensor]]] = []
        for t in range(0, horizon, STEPS):
            span = slice(t, min(t + STEPS, horizon))
            written = self._buffers.rows(span, self._samples.rows(span))
            self._spans.append((written, [x[span] for x in self._numbers]))
        keys = [unravel_key(key) for key in pattern.policy.in_keys]
        steps = WorldSteps(pattern.world, self._sample, keys, pattern.actions, self._buffers)
        self._steps = steps
        self._compiled = CompiledSteps(steps, say) if pattern.compiles else None
        self._parts: Callable[..., Parts] = BatchParts(self, self._buffers)
        if pattern.compiles:
            self._parts = GraphOr(self._parts, "the batch of a rollout", say)

    def __call__(self, rollouts: Sequence[WorldRolloutInCompany]) -> list[Made]:
        """Make the rollouts of learners for whom there is room."""
        start = perf_counter()
        with torch.no_grad(), set_interaction_type(self._pattern.exploration):
            self._policies.gather([rollout.policy for rollout in rollouts])
            for learner, rollout in enumerate(rollouts):
                rollout.company.ambient.call(self._draw, learner)
            for numbers in self._numbers:
                numbers[:, len(rollouts) :] = numbers[:, :1]
            self._step(rollouts)
            batches = self._batches(rollouts)
        seconds = (perf_counter() - start) / len(rollouts)
        return [(batch, seconds) for batch in batches]

    def tensors(self) -> dict[NestedKey, torch.Tensor]:
        """What the policies wrote in a rollout, ``[rows * num_envs, time, ...]`` each."""
        return self._policies.complete(self._samples.tensors(), self._policies.tensors)

    def _sample(
        self, step: int, inputs: list[torch.Tensor], tensors: Any, numbers: Any
    ) -> dict[NestedKey, torch.Tensor]:
        return self._policies.sample(inputs, tensors, [x[step] for x in numbers])

    def _draw(self, learner: int) -> None:
        """Draw what a learner's policy would draw, step by step."""
        for step in self._draws:
            for draw, numbers in step:
                draw.into(numbers[learner])

    def _step(self, rollouts: Sequence[WorldRolloutInCompany]) -> None:
        """Make all steps, and leave each world where it stands then."""
        spare = self.room.rows - len(rollouts)
        carries = []
        for rollout in rollouts:
            assert rollout.world.carry is not None
            carries.append(rollout.world.carry)
        carry = joined(carries, spare)
        for place, (first, *_) in enumerate(self._buffers.inputs):
            seen = [rollout.buffers.inputs[place][0] for rollout in rollouts]
            torch.cat([*seen, *seen[:1] * spare], out=first)
        given = self._policies.tensors
        for number, (rows, numbers) in enumerate(self._spans):
            if self._compiled is not None:
                try:
                    carry = self._compiled(carry, rows, given, numbers, again=number > 0)
                    continue
                except CannotCompileError as error:
                    self._compiled = None
                    say_eager(self._pattern.world, error)
            carry = self._steps(carry, rows, given, numbers)
        last = [torch.split(rows[-1], self._size) for rows in self._buffers.inputs]
        pieces = zip(divided(carry, self._size), *last, strict=True)
        for rollout, (own, *seen) in zip(rollouts, pieces, strict=False):
            rollout.world.carry = own._replace(keys=rollout.world.keys)
            rollout.buffers.restore(seen)

    def _batches(self, rollouts: Sequence[WorldRolloutInCompany]) -> list[TensorDict]:
        spare = self.room.rows - len(rollouts)
        sums = zip(*(rollout.sums for rollout in rollouts), strict=True)
        root, following, *rest = self._parts(*(torch.cat([*s, *s[:1] * spare]) for s in sums))
        pieces = (torch.split(x, self._size) for x in rest)
        for rollout, *now in zip(rollouts, *pieces, strict=False):
            for own, value in zip(rollout.sums, now, strict=True):
                own.copy_(value)
        device, number = self._buffers.reward.device, len(rollouts)
        parts = zip(self._divided(root, number), self._divided(following, number), strict=True)
        return [as_batch(own, after, False, device) for own, after in parts]

    def _divided(self, entries: Mapping[NestedKey, torch.Tensor], number: int) -> list[Entries]:
        """Of entries of all learners those of each, which lie in memory of their own."""
        pieces = [torch.split(x[: number * self._size], self._size) for x in entries.values()]
        return [
            {key: piece.clone() for key, piece in zip(entries, own, strict=True)}
            for own in zip(*pieces, strict=True)
        ]
