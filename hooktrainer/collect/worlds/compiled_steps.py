"""`WorldSteps`: several steps of a world, and of the policy that acts in it; also as one graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import NestedKey

from ...graphs.compiling import CannotCompileError, Graph
from .functional_world import Carry, FunctionalWorld
from .world_actions import WorldActions
from .world_buffers import Rows, WorldBuffers

STEPS = 8
"""How many steps are one graph; more take longer to compile, and gain little."""

_log = logging.getLogger(__name__)

Sample = Callable[..., dict[NestedKey, torch.Tensor]]


class WorldSteps:
    """Several steps of a `FunctionalWorld` and what acts in it, as a function of tensors.

    Args:
        world: The environments.
        sample: Returns ``"action"``, and what else is recorded, of the observations it takes.
        keys: The observations it takes.
        actions: How actions get to the world.
        buffers: Whose leaves the observations are.
    """

    def __init__(
        self,
        world: FunctionalWorld,
        sample: Sample,
        keys: Sequence[NestedKey],
        actions: WorldActions,
        buffers: WorldBuffers,
    ) -> None:
        self._advance, self._observations = world.advance, world.observations
        self._sample = sample
        self._places = [buffers.keys.index(key) for key in keys]
        self._to_world = actions.to_world
        self._values = buffers.values

    def __call__(self, carry: Carry, rows: Rows) -> Carry:
        """Make some steps.

        Args:
            carry: Where the world stands.
            rows: Where they are written; which says how many.

        Returns:
            Where the world stands then.
        """
        now = self._values(self._observations(carry))
        columns: list[list[Any]] = [[] for _ in Rows._fields]
        for _ in range(len(rows.reward)):
            sample = self._sample(*(now[place] for place in self._places))
            carry, outcome = self._advance(carry, self._to_world(sample["action"]))
            now = self._values(outcome.observation)
            assert outcome.final is not None
            written = Rows(
                now,
                self._values(outcome.final),
                outcome.reward,
                outcome.terminated,
                outcome.truncated,
                outcome.terminated | outcome.truncated,
                sample,
            )
            for column, value in zip(columns, written, strict=True):
                column.append(value)
        seen, final, reward, terminated, truncated, done, samples = columns
        for place, leaf in zip(rows.observation, zip(*seen, strict=True), strict=True):
            place.copy_(torch.stack(leaf))
        for place, leaf in zip(rows.final, zip(*final, strict=True), strict=True):
            place.copy_(torch.stack(leaf))
        for place, values in (
            (rows.reward, reward),
            (rows.terminated, terminated),
            (rows.truncated, truncated),
            (rows.done, done),
        ):
            place.copy_(torch.stack(values))
        for key, place in rows.sample.items():
            place.copy_(torch.stack([each[key] for each in samples]))
        return carry


class CompiledSteps:
    """The same as compiled graphs.

    Args:
        steps: The function.
        say: Told when it is compiled.
    """

    def __init__(self, steps: WorldSteps, say: Callable[[str], None]) -> None:
        self._steps, self._say = steps, say
        self._graphs: dict[int, Graph[Carry]] = {}

    def __call__(self, carry: Carry, rows: Rows, again: bool = False) -> Carry:
        """Make some steps.

        Args:
            carry: As for `WorldSteps`.
            rows: Likewise.
            again: Whether nothing but numbers can have changed since the last call.

        Raises:
            CannotCompileError: By a first call, if they are no graph.
        """
        steps = len(rows.reward)
        graph = self._graphs.get(steps)
        if graph is None:
            what = f"{steps} steps of the world" if steps > 1 else "a step of the world"
            graph = self._graphs[steps] = Graph(self._steps.__call__, what, self._say)
        call = graph.again if again else graph
        return call(carry, rows)


def say_eager(world: FunctionalWorld, why: CannotCompileError) -> None:
    """Say that a world's steps are no graph."""
    _log.warning("the steps of %s cannot be compiled, and are made eagerly: %s", world.name, why)
