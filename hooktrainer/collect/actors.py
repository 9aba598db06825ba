"""How a policy is asked for actions, one step of a rollout at a time."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from tensordict import NestedKey, unravel_key
from torch.utils._pytree import tree_leaves, tree_map

from ..base.space_parts import MASK
from ..errors import ConfigError
from ..networks.distributions.action_distribution import Draws
from ..networks.inference import ArrayNetwork, Inference
from ..networks.inputs import is_deterministic
from ..networks.policy import Policy as NetworkPolicy
from ..store.rng import rng_state, set_rng_state
from .action_format import AnyActionFormat
from .buffers import ObservationRows, OutputBuffers
from .spaces import Array


class SupportsAct(Protocol):
    """A policy with the fast interface."""

    @property
    def act(self) -> Callable[..., Any]:
        """Takes observations and returns a dict with ``"action"``."""


SomeEnvs = Sequence[int] | torch.Tensor
"""Some of the environments: their indices, or bool ``[num_envs]``, where the policy computes."""
Policy = Callable[..., Any] | SupportsAct
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Actor(Protocol):
    """A policy over the observations of one `StepBuffers`."""

    @property
    def is_laid_out(self) -> bool:
        """Whether the policy has been called, so that its outputs are known."""

    def act(self, t: int) -> Any:
        """Actions for the observations of step ``t``, recorded with all other outputs."""

    def skip(self, t: int) -> None:
        """Note that the policy is not asked in step ``t``."""

    def begin(self, envs: SomeEnvs) -> None:
        """Note that these environments are at the start of an episode."""

    def tensors(self, blank: bool = False) -> dict[NestedKey, torch.Tensor]:
        """What the policy wrote in this rollout, ``[num_envs, time, ...]`` each."""

    def state_dict(self) -> dict[str, Any]:
        """What is carried from one rollout to the next."""

    def check(self, state_dict: dict[str, Any]) -> None:
        """Raise a `StateMismatchError` if the state comes from another policy."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


def learn_outputs(actor: Actor, device: torch.device) -> None:
    """Call a policy once to see what it writes, and undo the call."""
    state = actor.state_dict()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        actor.act(0)
    actor.load_state_dict(state)


@runtime_checkable
class PartActor(Actor, Protocol):
    """An `Actor` that can be asked for some of the environments at a time."""

    def act_for(self, t: int, envs: slice) -> Any:
        """What `act` returns and records for some of the environments.

        The parts of a step follow one another, from the first environment to the last.
        """


class Stateless:
    """The part of an `Actor` that carries nothing from step to step."""

    def skip(self, t: int) -> None:
        """Do nothing."""

    def begin(self, envs: SomeEnvs) -> None:
        """Do nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Return no state."""
        return {}

    def check(self, state_dict: dict[str, Any]) -> None:
        """Do nothing."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do nothing."""


class FunctionActor(Stateless):
    """An `Actor` for a function that returns the actions, or a dict with ``"action"`` and more.

    It takes the observations ``keys``, one argument each; without ``keys`` all of them in one, a
    tensor or a dict of tensors, and an action mask as ``action_mask=`` if its signature has that.
    ``complete`` makes of what it returned what is recorded, for a whole rollout at once. If it is
    asked for all environments in every step (``in_full``), a policy of which that is known takes
    the quickest way, which draws a rollout's random numbers beforehand.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        buffers: ObservationRows,
        action_format: AnyActionFormat,
        num_envs: int,
        horizon: int,
        device: torch.device,
        keys: Sequence[NestedKey] | None = None,
        complete: Callable[[dict[NestedKey, torch.Tensor]], dict[NestedKey, torch.Tensor]]
        | None = None,
        in_full: bool = False,
    ) -> None:
        self._complete = complete
        self._send = buffers.send
        self._outputs = OutputBuffers(num_envs, horizon)
        self._function = function
        self._format = action_format
        self._num_envs = num_envs
        self._device = None if device.type == "cpu" else device
        of_module = isinstance(getattr(function, "__self__", function), torch.nn.Module)
        self._staged = StagedPolicy(self._call_all, self._call_stage, num_envs, may_split=of_module)
        rows = {
            unravel_key(leaf.key): tensors
            for leaf, tensors in zip(buffers.leaves, buffers.inputs, strict=True)
        }
        options: list[dict[str, torch.Tensor]] = [{} for _ in range(horizon)]
        if keys is None and len(rows) > 1 and _has_parameter(function, MASK) and MASK in rows:
            options = [{MASK: mask} for mask in rows.pop(MASK)]
        inputs = list(zip(*(rows[key] for key in keys), strict=True)) if keys else _joined(rows)
        # Made once: for each step the arguments of the call.
        self._arguments: list[Arguments] = list(zip(inputs, options, strict=False))
        self._latest: Arguments | None = None
        self._seen = inputs
        self._in_full = in_full and self._device is None
        self._steps: ArraySteps | None = None
        self._is_quick = False

    @property
    def is_laid_out(self) -> bool:
        """Whether the policy has been called, so that its outputs are known."""
        return bool(self._outputs)

    def act(self, t: int) -> Any:
        """Actions for the observations of step ``t``, recorded with all other outputs."""
        if t == 0:
            steps = self.array_steps()
            self._is_quick = steps is not None and steps.begin()
        if self._is_quick and self._steps is not None:
            return self._steps(t)
        if self._send is not None:
            self._send(t, slice(None))
        outputs = self._call(self._arguments[t])
        self._outputs.write(t, outputs)
        return self._format.find(outputs)

    def act_for(self, t: int, envs: slice) -> Any:
        """What `act` returns and records for some of the environments."""
        if self._send is not None:
            self._send(t, envs)
        outputs = self._staged(t, envs)
        self._outputs.write(t, outputs, envs)
        return self._format.find(outputs)

    def rows(self, span: slice) -> dict[NestedKey, torch.Tensor]:
        """Where what the function returns in some steps is recorded, by whoever calls it."""
        return self._outputs.rows(span)

    def array_steps(self) -> ArraySteps | None:
        """The quickest way through a rollout; ``None`` if there is none, or none is known yet."""
        if self._steps is None and self._in_full and self._outputs:
            self._steps = ArraySteps.of(self._function, self._seen, self._outputs.rows(slice(None)))
            self._in_full = self._steps is not None
        return self._steps

    def tensors(self, blank: bool = False) -> dict[NestedKey, torch.Tensor]:
        """What the function returned in this rollout, ``[num_envs, time, ...]`` each."""
        outputs = self._outputs.tensors(blank)
        if self._complete is None:
            return outputs
        completed = self._complete(outputs)
        return {k: v.zero_() for k, v in completed.items()} if blank else completed

    def _call_all(self, t: int, envs: slice) -> Mapping[NestedKey, Any]:
        """Call the function for all, of which only ``envs`` have landed in step ``t``."""
        landed = slice(None) if t == 0 and envs.start == 0 else envs
        if self._latest is None:
            self._latest = tree_map(torch.clone, self._arguments[t])
        for latest, row in zip(*map(tree_leaves, (self._latest, self._arguments[t])), strict=True):
            latest[landed] = row[landed]
        return self._call(self._latest)

    def _call_stage(self, t: int, envs: slice) -> Mapping[NestedKey, Any]:
        return self._call(tree_map(lambda x: x[envs], self._arguments[t]))

    def _call(self, arguments: Arguments) -> Mapping[NestedKey, Any]:
        if self._device is not None:
            device = self._device
            arguments = tree_map(lambda x: x.to(device, non_blocking=True), arguments)
        inputs, options = arguments
        result = self._function(*inputs, **options)
        outputs = result if isinstance(result, Mapping) else {"action": result}
        if not self._outputs:
            self._check(outputs)
        return outputs

    def _check(self, outputs: Mapping[NestedKey, Any]) -> None:
        for key in self._format.keys:
            if key not in outputs:
                raise ConfigError(
                    f"The policy returned {list(outputs)}; one key has to be {key!r}."
                )
            if not hasattr(outputs[key], "shape"):
                raise ConfigError(
                    f"The policy returned {type(outputs[key]).__name__}; return actions as a "
                    "tensor or an array, or a dict of these."
                )
        self._format.check(self._format.find(outputs), self._num_envs)
        self._outputs.allocate(outputs)


def as_array(value: Any) -> Array:
    """A tensor on any device, or an array, as an array."""
    if isinstance(value, torch.Tensor):
        return (value if value.is_cpu else value.cpu()).numpy()
    return value


def _joined(rows: Mapping[NestedKey, Sequence[torch.Tensor]]) -> list[tuple[Any, ...]]:
    """For each step one argument: the only observation, or a nested dict of all of them."""
    if len(rows) == 1:
        return [(row,) for row in next(iter(rows.values()))]
    arguments = []
    for values in zip(*rows.values(), strict=True):
        tree: dict[str, Any] = {}
        for key, value in zip(rows, values, strict=True):
            *parents, name = (key,) if isinstance(key, str) else key
            place = tree
            for parent in parents:
                place = place.setdefault(parent, {})
            place[name] = value
        arguments.append((tree,))
    return arguments


def _has_parameter(function: Callable[..., Any], name: str) -> bool:
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        return name in inspect.signature(target).parameters
    except (TypeError, ValueError):
        return False


# Steps of a rollout from which on it is worth while to look at a network once for all of them.
_WORTH = 8


class ArraySteps:
    """Acts as a policy's `sample` does, bit for bit, in a fraction of the time.

    What is the same at every step is looked at once a rollout: parameters do not change within it,
    and its random numbers depend on nothing that happens in it. What is left is NumPy, in memory
    that is there already.
    """

    def __init__(self, policy: NetworkPolicy, draws: Draws, seen: Sequence[Array]) -> None:
        self.network: Inference = policy.inference
        self.draws = draws
        self._seen = seen
        self._inputs = seen[0].shape, seen[0].dtype
        self._infer: Callable[..., Any] = self.network

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        seen: Sequence[tuple[Any, ...]],
        outputs: Mapping[NestedKey, torch.Tensor],
    ) -> ArraySteps | None:
        """The steps of a function of observations; ``None`` if it is no such policy's."""
        policy = getattr(function, "__self__", None)
        if not isinstance(policy, NetworkPolicy) or function != policy.sample:
            return None
        observed = [arguments[0] for arguments in seen]
        draws = policy.draws({str(key): rows for key, rows in outputs.items()})
        if draws is None or observed[0].ndim != 2 or len(observed) < _WORTH:
            return None
        return cls(policy, draws, [rows.numpy() for rows in observed])

    def begin(self) -> bool:
        """Begin a rollout; whether it can be, with the parameters as they are now."""
        try:
            self._infer = ArrayNetwork(self.network, *self._inputs)
        except ValueError:
            return False
        self.draws.begin(is_deterministic())
        return True

    def __call__(self, t: int) -> Array:
        """The actions of step ``t``, recorded with all other outputs."""
        self._infer(self._seen[t], self.draws.parameters[t])
        actions: Array = self.draws(t)
        return actions


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
        # A function with random generators of its own would be disturbed by being called twice.
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
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return all(
        torch.equal(x, y)  # NumPy has no bfloat16
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
        else np.array_equal(as_array(x), as_array(y))
        for x, y in pairs
    )


class Sampler(Protocol):
    """Draws random actions, of which a mask may allow only some."""

    def __call__(self, t: int, step: int) -> Outputs:
        """A policy's outputs in row ``t``, which is the environments' step ``step``."""

    def state_dict(self) -> dict[str, Any]:
        """The state of the generators."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of the generators."""


class RandomActor(Stateless):
    """An `Actor` without a policy."""

    is_laid_out = True

    def __init__(
        self, sampler: Sampler, action_format: AnyActionFormat, num_envs: int, horizon: int
    ) -> None:
        self.steps = 0
        self._sampler = sampler
        self._format = action_format
        self._outputs = OutputBuffers(num_envs, horizon)
        self.state_dict = sampler.state_dict  # type: ignore[method-assign]
        self.load_state_dict = sampler.load_state_dict  # type: ignore[method-assign]

    def act(self, t: int) -> Any:
        """Actions drawn from the action space, among those the mask allows."""
        outputs = self._sampler(t, self.steps + t)
        if not self._outputs:
            self._outputs.allocate(outputs)
        self._outputs.write(t, outputs)
        return self._format.find(outputs)

    def tensors(self, blank: bool = False) -> dict[NestedKey, torch.Tensor]:
        """The actions of this rollout, ``[num_envs, time, ...]``."""
        return self._outputs.tensors(blank)


class WarmUp:
    """Random actions in batches that look like the policy's.

    Everything else the policy would have written is zero, so that batches before and after have
    the same keys.
    """

    def __init__(self, policy: Actor, random: Actor) -> None:
        self._policy = policy
        self._random = random

    def act(self, t: int) -> Any:
        """Actions drawn from the action space."""
        self._policy.skip(t)
        return self._random.act(t)

    def begin(self, envs: SomeEnvs) -> None:
        """Note that these environments are at the start of an episode."""
        self._policy.begin(envs)

    def tensors(self) -> dict[NestedKey, torch.Tensor]:
        """The random actions, and zeros for what the policy would have written."""
        tensors = self._policy.tensors(blank=True)
        for key, action in self._random.tensors().items():
            tensors[key].copy_(action)
        return tensors
