"""Rollouts in stages: while some environments step, the policy acts for others."""

from __future__ import annotations

from time import perf_counter

from .actors import Actor, PartActor, as_array
from .random_actor import WarmUp
from .rollout import Rollout
from .worker_group import WorkerGroup


class StagedRollout(Rollout):
    """A `Rollout` over a `WorkerGroup`.

    Stages act in the order of their environments, so that everything comes out as with one.
    """

    _in_full = False
    _group: WorkerGroup

    def _step(self, actor: Actor | WarmUp) -> None:
        if not isinstance(actor, PartActor):  # random actions wait for nothing
            super()._step(actor)
            return
        stages, rows = self._group.stages, self._buffers.rows
        send = self._group.send
        act_for = self._timing.traced("collect/inference", actor.act_for)
        receive = self._timing.traced("collect/env", self._group.receive)
        self._finals.clear()
        inference = waited = 0.0
        now = perf_counter()
        for t in range(len(rows) + 1):
            for stage, envs in enumerate(stages):
                if t:
                    finished = receive(stage)
                    landed = perf_counter()
                    waited += landed - now
                    now = landed
                    if finished:
                        actor.begin([i for i, _ in finished])
                        self._finals += [(i, t - 1, values) for i, values in finished]
                if t < len(rows):
                    send(stage, as_array(act_for(t, envs)), rows[t])
                    acted = perf_counter()
                    inference += acted - now
                    now = acted
        self._add_up(len(rows))
        self._timing.add("collect/inference", inference)
        self._timing.add("collect/env", waited)
