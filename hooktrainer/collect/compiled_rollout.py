"""`CompiledRollout`: several steps of tensor environments and a policy in one compiled graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import torch
from tensordict import NestedKey, unravel_key

from ..errors import ConfigError
from ..graphs.compiling import CannotCompileError, Graph
from ..loop.timing import Timing
from .actors import FunctionActor, learn_outputs
from .batched_env import BatchedEnv
from .rollout import Rollout
from .tensor_envs import TensorEnvs, signals_of
from .worlds.functional_world import Carry, FunctionalWorld

_BYTES = (torch.bool, torch.uint8)
"""Types that are copied four at a time: a compiled copy one by one takes ten times as long."""
_log = logging.getLogger(__name__)


class CompiledRollout(Rollout):
    """A `Rollout` of a `FunctionalWorld` and a policy without memory."""

    def __init__(self, envs: BatchedEnv, policy: Any, horizon: int, **options: Any) -> None:
        super().__init__(envs, policy, horizon, **options)
        world: Any = getattr(envs, "world", None)
        sample: Any = getattr(policy, "sample", None)
        fits = isinstance(self._actor, FunctionActor) and callable(sample)
        fits &= self._policy_device == envs.device
        if not (fits and isinstance(envs, TensorEnvs) and isinstance(world, FunctionalWorld)):
            raise ConfigError(
                f"compile: {envs.name} has to be a FunctionalWorld, and the policy, a "
                f"{type(policy).__name__}, to have sample(), to carry nothing from step to step "
                "and to compute on the same device: compile the optimizer step alone, or nothing."
            )
        self._world = world
        for key in envs.entries:  # which a FunctionalWorld has no values for
            self._buffers.following[key].fill_(torch.nan)
        in_keys = [unravel_key(key) for key in policy.in_keys]
        self._compiled: WorldSteps | None = WorldSteps(envs, world, sample, in_keys)
        self._rows: list[Rows] = []
        self._graphs: dict[int, Graph[Carry]] = {}  # by how many steps they make

    def _make_steps(self, timing: Timing) -> int:
        if self._compiled is None or self._draws:
            return super()._make_steps(timing)
        world, actor = self._world, self._actor
        assert isinstance(actor, FunctionActor)
        if not actor.is_laid_out:
            learn_outputs(actor)
        if not self._rows:
            size, whole = world.steps_per_graph, self._horizon
            spans = (slice(t, min(t + size, whole)) for t in range(0, whole, size))
            self._rows = [self._rows_of(span, actor.outputs.buffers) for span in spans]
        start = perf_counter()
        carry, before = world.carry, 0
        try:
            for rows in self._rows:
                length = len(rows.following["reward"])
                if length not in self._graphs:
                    what = f"{length} steps of the world" if length > 1 else "a step of the world"
                    self._graphs[length] = Graph(self._compiled.__call__, what)
                graph = self._graphs[length]
                # From a graph's second call in a rollout on only values have changed.
                carry = (graph.again if length == before else graph)(carry, rows)
                before = length
        except CannotCompileError as error:
            self._compiled = None
            _log.warning(
                "the steps of %s cannot be compiled, and are made eagerly: %s", world.name, error
            )
            return super()._make_steps(timing)
        world.carry = carry
        timing.totals["collect/env"] += perf_counter() - start
        return self._horizon

    def _rows_of(self, span: slice, outputs: Mapping[NestedKey, torch.Tensor]) -> Rows:
        after = slice(span.start + 1, span.stop + 1)
        observation = [rows[after] for rows in self._buffers.observation.values()]
        following = {key: buffer[span] for key, buffer in self._buffers.following.items()}
        sample = {key: buffer[span] for key, buffer in outputs.items()}
        return Rows(observation, following, sample)


class Rows(NamedTuple):
    """Buffers of several steps, ``[steps, num_envs, ...]`` each.

    By leaf the observations to act on next; by key a batch's ``"next"``, and the policy's outputs.
    """

    observation: list[torch.Tensor]
    following: Mapping[NestedKey, torch.Tensor]
    sample: Mapping[NestedKey, torch.Tensor]


@dataclass
class WorldSteps:
    """Several steps of a `FunctionalWorld` and its policy, as a function of tensors."""

    envs: TensorEnvs
    world: FunctionalWorld
    sample: Callable[..., dict[NestedKey, torch.Tensor]]
    in_keys: list[NestedKey]

    def __call__(self, carry: Carry, rows: Rows) -> Carry:
        """Make as many steps as ``rows`` has, write them there, and return the new state."""
        leaves = self.envs.values
        now = leaves(self.world.observed(carry.state))
        steps = []
        for _ in range(len(rows.following["reward"])):
            sample = self.sample(*(now[key] for key in self.in_keys))
            carry, outcome = self.world.advance(carry, self.envs.to_world(sample["action"]))
            now = leaves(outcome.observation)
            assert outcome.final is not None
            following = {**leaves(outcome.final), **signals_of(outcome)}
            outputs = [sample[key] for key in rows.sample]
            steps.append([*now.values(), *following.values(), *outputs])
        written = [rows.following[key] for key in following]
        places = [*rows.observation, *written, *rows.sample.values()]
        for place, values in zip(places, zip(*steps, strict=True), strict=True):
            place = place.view(len(place), -1)
            words = place.dtype in _BYTES and place.shape[1] % 4 == 0
            as_type = torch.int32 if words else place.dtype
            rows_of = [value.reshape(-1).view(as_type) for value in values]
            place.view(as_type).copy_(torch.stack(rows_of))
        return carry
