"""`CompiledSteps`: several steps of a world, and of the policy that acts in it, as one graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import NestedKey

from ...graphs.compiling import Graph
from .functional_world import Carry, FunctionalWorld
from .rows import Rows
from .world_actions import WorldActions
from .world_buffers import WorldBuffers

STEPS = 8
"""How many steps are one graph; more take longer to compile, and gain little."""


class CompiledSteps:
    """Several steps of a `FunctionalWorld` and a policy as one compiled graph.

    The policy draws the random numbers that it draws without.

    Args:
        world: The environments.
        sample: Returns ``"action"``, and what else is recorded, of the observations it takes.
        keys: The observations it takes.
        actions: How actions get to the world.
        buffers: Whose leaves the observations are.
        say: Told when it is compiled.
    """

    def __init__(
        self,
        world: FunctionalWorld,
        sample: Callable[..., dict[NestedKey, torch.Tensor]],
        keys: Sequence[NestedKey],
        actions: WorldActions,
        buffers: WorldBuffers,
        say: Callable[[str], None],
    ) -> None:
        self._advance, self._observations = world.advance, world.observations
        self._sample = sample
        self._places = [buffers.keys.index(key) for key in keys]
        self._to_world = actions.to_world
        self._values = buffers.values
        self._say = say
        self._graphs: dict[int, Graph[Carry]] = {}

    def __call__(self, carry: Carry, rows: Rows, again: bool = False) -> Carry:
        """Make some steps.

        Args:
            carry: Where the world stands.
            rows: Where they are written; which says how many.
            again: Whether nothing but numbers can have changed since the last call.

        Returns:
            Where the world stands then.

        Raises:
            CannotCompileError: By a first call, if they are no graph.
        """
        steps = len(rows.reward)
        graph = self._graphs.get(steps)
        if graph is None:
            what = f"{steps} steps of the world" if steps > 1 else "a step of the world"
            graph = self._graphs[steps] = Graph(self._run, what, self._say)
        return graph.again(carry, rows) if again else graph(carry, rows)

    def _run(self, carry: Carry, rows: Rows) -> Carry:
        now = self._values(self._observations(carry))
        columns: list[list[Any]] = [[] for _ in Rows._fields]
        for _ in range(len(rows.reward)):
            sample = self._sample(*[now[place] for place in self._places])
            carry, outcome = self._advance(carry, self._to_world(sample["action"]))
            now = self._values(outcome.observation)
            assert outcome.final is not None
            step = Rows(
                now,
                self._values(outcome.final),
                outcome.reward,
                outcome.terminated,
                outcome.truncated,
                outcome.terminated | outcome.truncated,
                sample,
            )
            for column, value in zip(columns, step, strict=True):
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
