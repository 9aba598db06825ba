"""Calling a policy for some of the environments, with the same result as for all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ..store.rng import rng_state, set_rng_state

Outputs = dict[Any, Any]
_TRIALS = 3  # steps in which both ways are compared


class RngRewind:
    """Has every stage of a step find the random generators as the first one did.

    So a policy that is called for all environments once a stage draws the same numbers each time.
    """

    def __init__(self) -> None:
        self.before: dict[str, Any] = {}
        self._actions: Any = None
        self._warned = False

    def __call__(self, envs: slice) -> None:
        """Note the generators' state before the first stage; set it back before the others."""
        if envs.start == 0:
            self.before = rng_state()
        else:
            set_rng_state(self.before)

    def compare(self, t: int, envs: slice, actions: Any) -> None:
        """Warn if a call at the first step, where all find the same, does not act as the first."""
        if t or self._warned:
            return
        if envs.start == 0:
            self._actions = _copy(actions)
        elif not _same(self._actions[envs], actions[envs]):
            self._warned = True
            warnings.warn(
                "called twice for the same observations, the policy acts differently: it changes "
                "as it acts, or draws from a random generator of its own. With several stages it "
                "does so once a stage, so the data are not those of stages=1.",
                stacklevel=2,
            )


class StagedPolicy:
    """Calls a policy stage by stage, the stages of a step in order.

    The rounding of a matrix product, and some random numbers, depend on the number of rows. So a
    policy is called for all environments at every stage and only the stage's rows are used, unless
    its first steps, done both ways, are equal bit for bit: then it is called for the stage alone.

    Args:
        call_all: Given a step and some environments, calls the policy for all, of which these have
            new observations.
        call_stage: Calls it for these alone.
        num_envs: Number of environments.
        may_split: Whether to try the second way. A function that keeps random generators of its
            own would be disturbed by being called twice.

    Attributes:
        splits: Whether the policy is called for the stage alone.
    """

    def __init__(
        self,
        call_all: Callable[[int, slice], Mapping[Any, Any]],
        call_stage: Callable[[int, slice], Mapping[Any, Any]],
        num_envs: int,
        may_split: bool,
    ) -> None:
        self._call_all = call_all
        self._call_stage = call_stage
        self._num_envs = num_envs
        self.splits = False
        self._trials = _TRIALS if may_split else 0
        self._same = True
        self._rewind = RngRewind()
        self._staged: dict[str, Any] = {}

    def __call__(self, t: int, envs: slice) -> Outputs:
        """The policy's outputs for the environments ``envs`` in step ``t``."""
        if self.splits:
            return dict(self._call_stage(t, envs))
        self._rewind(envs)
        whole = self._call_all(t, envs)
        self._rewind.compare(t, envs, whole["action"])
        outputs = {key: value[envs] for key, value in whole.items()}
        if self._trials:
            self._try(t, envs, outputs)
        return outputs

    def _try(self, t: int, envs: slice, outputs: Outputs) -> None:
        after = rng_state()
        if envs.start == 0:
            self._staged = self._rewind.before
        kept = {key: _copy(value) for key, value in outputs.items()}
        set_rng_state(self._staged)
        stage = self._call_stage(t, envs)
        self._staged = rng_state()
        set_rng_state(after)
        self._same = self._same and all(_same(value, stage[key]) for key, value in kept.items())
        if envs.stop == self._num_envs:
            self._trials -= 1
            self._same = self._same and _same(after, self._staged)
            self.splits = self._same and not self._trials


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else np.array(value)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return all(_same(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)
