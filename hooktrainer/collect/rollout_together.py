"""Rollouts of several collectors at once: their environments step together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import torch
from tensordict.nn import set_interaction_type
from tensordict.nn.probabilistic import interaction_type

from ..loop.company import Company
from ..networks.inference import ArrayNetwork
from ..networks.inputs import is_deterministic
from .actors import Actor, FunctionActor, as_array, learn_outputs
from .buffers import Allocate, Row, StepBuffers
from .group import Finished
from .random_actor import WarmUp
from .rollout import Rollout
from .slot_group import JoinedSlots, SlotGroup
from .spaces import Array

Step = Callable[[Array, Row], list[Finished]]
T = TypeVar("T")


class RolloutInCompany(Rollout):
    """A `Rollout` that is stepped together with those of other loops.

    Args:
        *args: As for `Rollout`.
        company: The other loops.
        server: What steps the rollouts of all.
        **kwargs: As for `Rollout`.
    """

    def __init__(self, *args: Any, company: Company, server: RolloutServer, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._company = company
        self._server = server
        self.acting: Actor | WarmUp = self._actor
        self.exploration = interaction_type()

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return self._group.num_envs

    def alike(self, other: RolloutInCompany) -> bool:
        """Whether another one can be stepped with this one."""
        mine, others = self._buffers, other._buffers
        return (
            len(mine.rows) == len(others.rows)
            and mine.leaves == others.leaves
            and len(mine.info) == len(others.info)
            and self.exploration == other.exploration
        )

    def move(self, buffers: StepBuffers) -> None:
        """Have everything written to other memory; what is carried over is taken along."""
        last = [array[-1].copy() for array in self._buffers.observation]
        carried = self._actor.state_dict(), self._random.state_dict()
        knows_outputs = self._actor.is_laid_out
        self._lay_out(buffers)
        for array, values in zip(buffers.observation, last, strict=True):
            array[0] = array[-1] = values
        if knows_outputs:
            self._company.ambient.call(learn_outputs, self._actor, self._policy_device)
        self._actor.load_state_dict(carried[0])
        self._random.load_state_dict(carried[1])

    def act(self, t: int) -> Array:
        """The actions of a step, with random numbers of the loop's own."""
        return as_array(self._company.ambient.call(self.acting.act, t))

    def no_actions(self) -> Array:
        """What stands where nobody acts any more."""
        space = self._action_format
        return np.zeros((self.num_envs, *space.shape), space.dtype)

    def step(self, actions: Array, row: Row) -> list[Finished]:
        """Step the environments by themselves."""
        return self._group.step(actions, row)

    def end(self, finished: Sequence[Finished], t: int) -> None:
        """Note that episodes ended in a step."""
        self.acting.begin([i for i, _ in finished])
        self._finals += [(i, t, values) for i, values in finished]

    def _step(self, actor: Actor | WarmUp) -> None:
        self._finals.clear()
        self.exploration = interaction_type()
        is_warm_up = actor is self._warm_up
        inference, stepping = self._company.ask(self._server, (self, is_warm_up))
        self._add_up(len(self._buffers.rows))
        self._timing.add("collect/inference", inference)
        self._timing.add("collect/env", stepping)


class RolloutServer:
    """Steps the rollouts of several loops.

    Args:
        rank: See `hooktrainer.loop.company.Server`.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._joined: list[JoinedRollouts] = []

    def serve(self, requests: Sequence[tuple[RolloutInCompany, bool]]) -> Sequence[Any]:
        """Step rollouts to their ends; the answers are seconds of acting and of stepping."""
        rollouts = [rollout for rollout, _ in requests]
        kinds = _kinds(rollouts)
        joined = []
        answers: dict[int, Any] = {}
        for kind in kinds:
            one = next((j for j in self._joined if j.rollouts == kind), None)
            joined.append(one or JoinedRollouts(kind))
        self._joined = joined
        for rollout, is_warm_up in requests:
            rollout.acting = rollout._acting(is_warm_up)
        for one in joined:
            answers |= one.run()
        return [answers[id(rollout)] for rollout in rollouts]


class JoinedRollouts:
    """Rollouts whose buffers lie side by side, so that their environments step at once.

    Args:
        rollouts: Such as are alike.
    """

    def __init__(self, rollouts: Sequence[RolloutInCompany]) -> None:
        self.rollouts = list(rollouts)
        one = rollouts[0]._buffers
        ends = np.cumsum([rollout.num_envs for rollout in rollouts]).tolist()
        self._slices = [
            slice(end - rollout.num_envs, end) for rollout, end in zip(rollouts, ends, strict=True)
        ]
        arrays: list[Array] = []

        def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
            arrays.append(np.zeros(shape, dtype))
            return arrays[-1]

        horizon, infos = len(one.rows), len(one.info)
        whole = StepBuffers(one.leaves, ends[-1], horizon, allocate=allocate, infos=infos)
        self._rows = whole.rows
        self._observed = whole.observation
        for rollout, part in zip(rollouts, self._slices, strict=True):
            rollout.move(
                StepBuffers(
                    one.leaves,
                    rollout.num_envs,
                    horizon,
                    allocate=_taking([array[:, part] for array in arrays]),
                    infos=infos,
                )
            )
        self._owner = [k for k, rollout in enumerate(rollouts) for _ in range(rollout.num_envs)]
        self._failed: dict[int, Exception] = {}  # by rollout, whose environments stand still then
        self._step = self._stepper()

    def run(self) -> dict[int, Any]:
        """Step to the end; by rollout the seconds that acting and stepping took, or what failed."""
        self._failed.clear()
        acting = stepping = 0.0
        now = perf_counter()
        with torch.no_grad(), set_interaction_type(self.rollouts[0].exploration):
            act = self._acting()
            for t, row in enumerate(self._rows):
                actions = np.concatenate(act(t))
                acted = perf_counter()
                finished = self._step(actions, row)
                if finished:
                    self._tell(finished, t)
                acting += acted - now
                now = perf_counter()
                stepping += now - acted
        share = acting / len(self.rollouts), stepping / len(self.rollouts)
        return {id(rollout): self._failed.get(k, share) for k, rollout in enumerate(self.rollouts)}

    def _acting(self) -> Callable[[int], list[Array]]:
        """What gives the actions of all for a step."""

        def one_by_one(t: int) -> list[Array]:
            acts = self._each(lambda k, rollout: rollout.act(t))
            return [
                rollout.no_actions() if actions is None else actions
                for rollout, actions in zip(self.rollouts, acts, strict=True)
            ]

        actors = [rollout.acting for rollout in self.rollouts]
        mine = [actor for actor in actors if isinstance(actor, FunctionActor)]
        ways = [actor.array_steps() for actor in mine]
        steps = [way for way in ways if way is not None]
        sizes = {rollout.num_envs for rollout in self.rollouts}
        if len(steps) < len(actors) or len(sizes) > 1 or len(self._observed) > 1:
            return one_by_one
        observed = self._observed[0]
        seen = observed.reshape(len(observed), len(actors), -1, observed.shape[-1])
        try:
            infer = ArrayNetwork([own.network for own in steps], seen[0].shape, seen.dtype)
        except ValueError:
            return one_by_one
        for rollout, own in zip(self.rollouts, steps, strict=True):
            rollout._company.ambient.call(own.draws.begin, is_deterministic())

        def act(t: int) -> list[Array]:
            actions = []
            for own, parameters in zip(steps, infer(seen[t]), strict=True):
                own.draws.parameters[t][...] = parameters
                actions.append(own.draws(t))
            return actions

        return act

    def _tell(self, finished: Sequence[Finished], t: int) -> None:
        for k, ended in groupby(finished, key=lambda one: self._owner[one[0]]):
            first = self._slices[k].start
            self.rollouts[k].end([(i - first, values) for i, values in ended], t)

    def _stepper(self) -> Step:
        groups = [rollout._group for rollout in self.rollouts]
        slots = [group for group in groups if isinstance(group, SlotGroup)]
        if len(slots) == len(groups) and all(slots[0].like(other) for other in slots):
            return JoinedSlots(slots).step
        return self._one_by_one

    def _one_by_one(self, actions: Array, row: Row) -> list[Finished]:
        def step(k: int, rollout: RolloutInCompany) -> list[Finished]:
            part = self._slices[k]
            ended = rollout.step(actions[part], row.part(part))
            return [(part.start + i, values) for i, values in ended]

        return [one for ended in self._each(step) if ended is not None for one in ended]

    def _each(self, call: Callable[[int, RolloutInCompany], T]) -> list[T | None]:
        """What a call gives for each rollout; ``None`` from the moment on that it fails for it."""
        results: list[T | None] = []
        for k, rollout in enumerate(self.rollouts):
            try:
                results.append(None if k in self._failed else call(k, rollout))
            except Exception as error:
                self._failed[k] = error
                results.append(None)
        return results


def _taking(arrays: Sequence[Array]) -> Allocate:
    """What gives these arrays one after another, in place of new ones."""
    remaining = iter(arrays)
    return lambda shape, dtype: next(remaining)


def _kinds(rollouts: Sequence[RolloutInCompany]) -> list[list[RolloutInCompany]]:
    """Rollouts by what can be stepped together."""
    kinds: list[list[RolloutInCompany]] = []
    for rollout in rollouts:
        kind = next((kind for kind in kinds if kind[0].alike(rollout)), None)
        if kind is None:
            kinds.append([rollout])
        else:
            kind.append(rollout)
    return kinds
