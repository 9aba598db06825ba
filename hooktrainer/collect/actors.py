"""Call a policy for actions, one step of a rollout at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDict
from torch.utils._pytree import tree_leaves, tree_map

from ..base.space_parts import MASK
from ..base.untrusted import one_line
from ..errors import ConfigError
from ..networks.policy import ArraySteps
from ..networks.policy import Policy as NetworkPolicy
from ..store.rng import rng_state, set_rng_state, undisturbed
from .action_format import ActionFormat
from .buffers import Inputs, OutputBuffers, as_arrays

SomeEnvs = Sequence[int] | torch.Tensor
"""Some of the environments: their indices, or bool ``[num_envs]``."""
Policy = Any
"""A function of observations, a module, or an object with `act`."""
Outputs = Mapping[Any, Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Actor:
    """A policy over the observations of one rollout; this one carries and writes nothing.

    Attributes:
        has_stages: Whether it can act for some of the environments at a time.
        is_laid_out: Whether its outputs are known, as after the first call of the policy.
        may_be_fast: Whether there may be a faster way to act, once these are known.
    """

    has_stages = False
    is_laid_out = True
    may_be_fast = False

    def act(self, t: int, envs: slice | None = None) -> Any:
        """Actions for the observations of step ``t``, recorded with all other outputs.

        ``envs`` are those of one stage, ``None`` all. The stages of a step follow one another.
        """
        raise NotImplementedError

    def skip(self, t: int) -> None:
        """Note that the policy is not called in step ``t``, since actions are drawn at random."""

    def begin(self, envs: SomeEnvs) -> None:
        """Note that these environments are at the start of an episode."""

    def tensors(self, blank: bool = False) -> dict[NestedKey, torch.Tensor]:
        """The policy's outputs in this rollout, ``[num_envs, time, ...]`` each.

        With ``blank``, zeros of the same shapes and types.
        """
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


def learn_outputs(actor: Actor) -> None:
    """Call a policy once to see what it writes, and undo the call."""
    state = actor.state_dict()
    with undisturbed():
        actor.act(0)
    actor.load_state_dict(state)


_TRIALS = 3
"""Rollouts whose first step is made both ways; see `FunctionActor`."""


class FunctionActor(Actor):
    """An `Actor` for a function that returns the actions, or a dict with ``"action"`` and more.

    It takes the observations ``keys``, one argument each; without ``keys`` all of them in one, a
    tensor or a dict of tensors, and an action mask as ``action_mask=`` if its signature has that.
    ``complete`` turns its outputs of a whole rollout into those that are recorded.

    A small policy that acts for all environments in every step (``in_full``) uses its
    `ArraySteps`.

    **Stages.** The rounding of a matrix product, and some random numbers, depend on the number of
    rows. So a policy is called for all environments at every stage, each time with the same random
    numbers, and only the stage's rows are used. If calls for each stage give the same bits at the
    beginning of the first rollouts, it is called for the stage alone from then on.
    """

    has_stages = True

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Inputs,
        action_format: ActionFormat,
        num_envs: int,
        horizon: int,
        device: torch.device,
        keys: Sequence[NestedKey] | None = None,
        complete: Callable[[dict[NestedKey, torch.Tensor]], dict[NestedKey, torch.Tensor]]
        | None = None,
        in_full: bool = False,
        stages: Sequence[slice] = (),
    ) -> None:
        self._complete = complete
        self.is_laid_out = False
        self.outputs = OutputBuffers(num_envs, horizon)
        self._function = function
        self._format = action_format
        self._num_envs = num_envs
        rows = dict(inputs)
        at = next(iter(rows.values()))[0].device
        self._device = None if at == device else device  # to which they have to be copied
        options: list[dict[str, torch.Tensor]] = [{} for _ in range(horizon)]
        if keys is None and len(rows) > 1 and has_parameter(function, MASK) and MASK in rows:
            options = [{MASK: mask} for mask in rows.pop(MASK)]
        taken = list(zip(*(rows[key] for key in keys), strict=True)) if keys else _joined(rows)
        # Made once: for each step the arguments of the call.
        self._arguments: list[Arguments] = list(zip(taken, options, strict=False))
        owner = getattr(function, "__self__", None)
        is_sample = isinstance(owner, NetworkPolicy) and function == owner.sample
        self.may_be_fast = in_full and self._device is None and is_sample
        self._steps: ArraySteps | None = None
        self.is_fast = False
        self._stages = stages
        self._trials = _TRIALS  # that are left
        self._splits = False
        self._latest: Arguments | None = None
        self._before: dict[str, Any] = {}

    def act(self, t: int, envs: slice | None = None) -> Any:
        if t == 0 and self.may_be_fast and self.is_laid_out:
            # Take the fast way through this rollout, if there is one with the present parameters.
            if self._steps is None:
                policy: Any = self._function.__self__  # type: ignore[attr-defined]
                seen = [inputs[0] for inputs, _ in self._arguments]
                self._steps = policy.array_steps(seen, self.outputs.buffers)
            self.may_be_fast = self._steps is not None
            self.is_fast = self._steps is not None and self._steps.begin()
        if self.is_fast and self._steps is not None:
            return self._steps(t)
        outputs = self._call(self._arguments[t]) if envs is None else self._call_stage(t, envs)
        self.outputs.write(t, outputs, envs)
        return self._format.find(outputs)

    def tensors(self, blank: bool = False) -> dict[NestedKey, torch.Tensor]:
        outputs = self.outputs.tensors(blank)
        if self._complete is None:
            return outputs
        completed = self._complete(outputs)
        return {k: v.zero_() for k, v in completed.items()} if blank else completed

    def _call_stage(self, t: int, envs: slice) -> Outputs:
        begins = envs.start == 0
        if t == 0 and begins and self._trials:
            self._try_stages()
        if self._splits:
            return self._call_part(t, envs)
        if begins:
            self._before = rng_state()
        else:
            set_rng_state(self._before)
        outputs = self._call_landed(t, slice(None) if t == 0 and begins else envs)
        return {key: value[envs] for key, value in outputs.items()}

    def _call_landed(self, t: int, envs: slice) -> Outputs:
        """Call the function for all, of which only ``envs`` have landed since the last call."""
        if self._latest is None:
            self._latest = tree_map(torch.clone, self._arguments[t])
        for latest, row in zip(*map(tree_leaves, (self._latest, self._arguments[t])), strict=True):
            latest[envs] = row[envs]
        return self._call(self._latest)

    def _call_part(self, t: int, envs: slice) -> Outputs:
        return self._call(tree_map(lambda x: x[envs], self._arguments[t]))

    def _try_stages(self) -> None:
        """Call the policy both ways at the first step, where all observations are known."""
        before = rng_state()
        whole = {k: _copy(v) for k, v in self._call_landed(0, slice(None)).items()}
        after = rng_state()
        set_rng_state(before)
        try:
            fits = all(
                _same({key: value[envs] for key, value in whole.items()}, self._call_part(0, envs))
                for envs in self._stages
            )
            fits = fits and _same(after, rng_state())
        except Exception:  # it takes the observations of all environments only
            fits = False
        set_rng_state(before)
        self._trials = self._trials - 1 if fits else 0
        self._splits = fits and not self._trials

    def _call(self, arguments: Arguments) -> Outputs:
        if self._device is not None:
            device = self._device
            wait = device.type == "cpu"  # else the policy would read before the copy is made
            arguments = tree_map(lambda x: x.to(device, non_blocking=not wait), arguments)
        inputs, options = arguments
        result = self._function(*inputs, **options)
        outputs = result if isinstance(result, Mapping) else {"action": result}
        if not self.is_laid_out:
            for key in self._format.keys:
                if not hasattr(outputs.get(key), "shape"):
                    raise ConfigError(
                        f"The policy returned {one_line(dict(outputs), 200)}: let it return "
                        f"actions as a tensor or an array, or a dict of these with {key!r}."
                    )
            self._format.check(self._format.find(outputs), self._num_envs)
            self.outputs.allocate(outputs)
            self.is_laid_out = True
        return outputs


def _joined(rows: Mapping[NestedKey, Sequence[torch.Tensor]]) -> list[tuple[Any, ...]]:
    """For each step one argument: the only observation, or a nested dict of all of them."""
    steps = list(zip(*rows.values(), strict=True))
    if len(rows) == 1:
        return steps
    return [(TensorDict(dict(zip(rows, step, strict=True))).to_dict(),) for step in steps]


def has_parameter(function: Callable[..., Any], name: str) -> bool:
    """Whether a function or module takes an argument of this name."""
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        return name in inspect.signature(target).parameters
    except (TypeError, ValueError):
        return False


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else np.array(value)


def _same(a: Any, b: Any) -> bool:
    return all(
        torch.equal(x, y)  # NumPy has no bfloat16
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
        else np.array_equal(as_arrays(x), as_arrays(y))
        for x, y in zip(tree_leaves(a), tree_leaves(b), strict=True)
    )
