"""Rollouts over environments that begin an episode in a step that is no transition."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from ..loop.timing import Timing
from .actors import Actor, Policy, as_array
from .group import EnvGroup
from .random_actor import WarmUp
from .rollout import Rollout


class GappedRollout(Rollout):
    """A `Rollout` that leaves out the steps in which an episode only begins.

    It steps until every environment has its transitions. Of those that have more by then, since
    fewer of their episodes ended, the last ones are left out: in a batch the transitions of an
    environment follow one another, and between two batches some may be missing.

    Args:
        group: The environments, whose ``began`` says who only began an episode.
        policy: What `VectorCollector` takes.
        horizon: Transitions of each environment in a batch.
        **rest: As for `Rollout`.
    """

    _in_full = False

    def __init__(self, group: EnvGroup, policy: Policy | None, horizon: int, **rest: Any) -> None:
        # Even if every second step is none there are enough.
        super().__init__(group, policy, 2 * horizon, **rest)
        self._horizon = horizon
        self._is_transition = np.zeros((2 * horizon, group.num_envs), bool)

    def collect(self, timing: Timing, warm_up: bool = False) -> TensorDict:
        """Collect the transitions of a batch, ``[num_envs, horizon]``."""
        steps = super().collect(timing, warm_up)
        order = np.argsort(~self._is_transition, axis=0, kind="stable")[: self._horizon]
        taken = torch.from_numpy(order.T.copy()).to(steps.device or "cpu")
        rows = torch.arange(self._group.num_envs, device=taken.device)[:, None]
        return steps[rows, taken]

    def _step(self, actor: Actor | WarmUp) -> None:
        act = self._timing.traced("collect/inference", actor.act)
        step = self._timing.traced("collect/env", self._group.step)
        self._finals.clear()
        self._is_transition[...] = False
        inference = stepping = 0.0
        now = perf_counter()
        begun: list[tuple[int, int]] = []
        left = np.full(self._group.num_envs, self._horizon)
        for t, row in enumerate(self._buffers.rows):
            actions = as_array(act(t))
            acted = perf_counter()
            self._finals += [(i, t, values) for i, values in step(actions, row)]
            began = self._group.began
            if began.any():
                actor.begin(np.flatnonzero(began).tolist())
                begun += [(i, t) for i in np.flatnonzero(began).tolist()]
            self._is_transition[t] = ~began
            left -= ~began
            inference += acted - now
            now = perf_counter()
            stepping += now - acted
            if left.max() <= 0:
                break
        for array in self._buffers.observation:
            array[-1] = array[t + 1]  # where the next rollout goes on
        self._add_up(t + 1, begun)
        self._timing.add("collect/inference", inference)
        self._timing.add("collect/env", stepping)
