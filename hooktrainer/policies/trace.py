"""Turns a policy into a `Program`: records the calls it makes of PyTorch's basic operators.

It records two batch sizes and compares them, to find the numbers that depend on the batch size.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import NestedKey, unravel_key
from torch import Tensor, nn
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from ..errors import CheckpointError, ConfigError
from .calls import INSTEAD, objection
from .draws import FROM_STANDARD, RecordedDraws, decode_draws, take_draws
from .live import LivePolicy, first_states, parts, read_keys, without_numpy
from .program import Program

_SIZES = (5, 7)  # batch sizes; numbers that are multiples of both at one place stand for the batch


@dataclass(frozen=True)
class Traced:
    """A policy as plain data, without its weights.

    Attributes:
        reads: The observations it reads.
        program: The description of a `Program` from observations and hidden states to the best
            action and the next hidden states.
        sampling: The same for a random action, with `draws` as inputs; or why it cannot be
            recorded.
        weights: Names of the policy's parameters and buffers that it uses.
        constants: Other tensors that it uses.
        state: The initial hidden states by name, without a batch dimension.
        example: The actions for the examples, ``[examples, ...]``, of each group of agents.
    """

    reads: tuple[NestedKey, ...]
    program: dict[str, Any]
    sampling: dict[str, Any] | str
    weights: tuple[str, ...]
    constants: Mapping[str, Tensor]
    state: Mapping[str, Tensor]
    example: tuple[Tensor, ...]


@dataclass(frozen=True)
class _Copy:
    """A copy of a policy on the CPU, which PyTorch evaluates, and its inputs for the examples."""

    module: LivePolicy
    drawing: LivePolicy
    reads: list[NestedKey]
    state: dict[str, Tensor]
    given: list[Tensor]

    @classmethod
    def of(
        cls,
        policy: nn.Module,
        keys: Sequence[NestedKey],
        examples: Sequence[Tensor],
        actions: Sequence[NestedKey],
    ) -> _Copy:
        by_key = {unravel_key(key): value for key, value in zip(keys, examples, strict=True)}
        reads, hidden = read_keys(policy, list(by_key))
        plain = copy.deepcopy(policy).cpu().eval()
        without_numpy(plain)
        state = {_name(key): value for key, value in first_states(plain, hidden).items()}
        given = [by_key[key] for key in reads]
        given += [value.expand(len(given[0]), *value.shape) for value in state.values()]
        module, drawing = (
            LivePolicy(plain, reads, hidden, random=random, actions=actions)
            for random in (False, True)
        )
        return cls(module, drawing, reads, state, given)


def trace(
    policy: Any,
    keys: Sequence[NestedKey],
    examples: Sequence[Tensor],
    actions: Sequence[NestedKey] = ("action",),
) -> Traced:
    """Record how a policy computes its actions.

    A copy is run on the CPU; the policy and the random generators do not change.

    Args:
        policy: A policy with ``act`` and ``in_keys``, a TensorDict module, or a module that maps
            observations to actions.
        keys: The available observations.
        examples: One tensor ``[at least 12, ...]`` for each.
        actions: The policy's action keys, one for each group of agents.
    """
    check_saveable(policy)
    with torch.random.fork_rng(devices=[]):
        own = _Copy.of(policy, keys, examples, actions)
        names = [*map(_name, own.reads), *own.state]
        program, recorded = _record(own.module, own.given, names)
        sampling, drawn = _sampling(own.drawing, own.given, names)
        constants = dict(recorded.constants)
        used = _used(program)
        if isinstance(sampling, dict):
            used |= _used(sampling)
            constants |= drawn
        traced = Traced(
            tuple(own.reads),
            program,
            sampling,
            tuple(name for name in recorded.weights if name in used),
            {name: t for name, t in constants.items() if name in used},
            own.state,
            own.module.on(own.given)[: len(actions)],
        )
        if (differing := _difference(traced, own.module, own.given)) is not None:
            raise ConfigError(
                f"{type(policy).__name__} acts differently when it is saved ({differing}): does it "
                "choose by Python conditions on the values of tensors?"
            )
    return traced


def _record(
    module: LivePolicy, given: Sequence[Tensor], names: Sequence[str]
) -> tuple[dict[str, Any], Recorded]:
    """Record a program with named inputs; also returns one of the recordings."""
    recorded = [record_calls(module, [value[:size] for value in given]) for size in _SIZES]
    program = _merge(recorded[0].description, recorded[1].description)
    program["inputs"] = [*names, *(f"draw.{i}" for i in range(len(program["draws"])))]
    _rename(program, dict(zip(recorded[0].inputs, program["inputs"], strict=True)))
    return program, recorded[0]


def _sampling(
    module: LivePolicy, given: Sequence[Tensor], names: Sequence[str]
) -> tuple[dict[str, Any] | str, dict[str, Tensor]]:
    """Record how the policy samples, or the reason why it cannot be; and its constants."""
    try:
        program, recorded = _record(module, given, names)
        decode_draws(program["draws"])
    except (ConfigError, ValueError) as error:
        return str(error), {}
    renamed = {name: f"sampling.{name}" for name in recorded.constants}
    constants = {renamed[name]: tensor for name, tensor in recorded.constants.items()}
    _rename(program, renamed)
    weights = [name for name in recorded.weights if name in _used(program)]
    reason = _sampling_difference(program, _tensors(module, weights, constants), module, given)
    return (program, constants) if reason is None else (reason, {})


def check_saveable(policy: Any) -> None:
    """Refuse a policy that is no module, and parameters sharded among processes."""
    if not isinstance(policy, nn.Module):
        raise ConfigError(
            f"the policy is a {type(policy).__name__}, and only a torch.nn.Module can be saved "
            "with its weights: make it one."
        )
    if any(hasattr(parameter, "full_tensor") for parameter in policy.parameters()):
        raise ConfigError(
            "the policy's parameters are shared out among processes (FSDP); it cannot be saved."
        )


def current_weights(policy: nn.Module, traced: Traced) -> dict[str, Tensor]:
    """Copy the tensors that a traced policy uses to the CPU."""
    live = named_tensors(LivePolicy(policy, ()))
    weights = {
        name: live[name].detach().cpu().clone(memory_format=torch.contiguous_format)
        for name in traced.weights
    }
    return {**weights, **traced.constants}


def still_holds(
    traced: Traced,
    policy: nn.Module,
    keys: Sequence[NestedKey],
    examples: Sequence[Tensor],
    actions: Sequence[NestedKey] = ("action",),
) -> bool:
    """Whether a traced policy, with current weights, still computes what the policy does.

    It does not if something other than a tensor has changed, such as a Python number. Arguments
    are those of `trace`.
    """
    with torch.random.fork_rng(devices=[]):
        own = _Copy.of(policy, keys, examples, actions)
        if _difference(traced, own.module, own.given) is not None:
            return False
        if isinstance(traced.sampling, str):
            return True
        weights = _tensors(own.drawing, traced.weights, traced.constants)
        return _sampling_difference(traced.sampling, weights, own.drawing, own.given) is None


def _tensors(
    module: nn.Module, names: Sequence[str], constants: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Parameters and buffers of these names, and the constants."""
    own = named_tensors(module)
    return {**{name: own[name].detach() for name in names}, **constants}


def _sampling_difference(
    program: dict[str, Any],
    weights: Mapping[str, Tensor],
    module: LivePolicy,
    given: Sequence[Tensor],
) -> str | None:
    """How a sampling program differs from the policy on the same random numbers."""
    module.prepare(len(given[0]))
    with RecordedDraws() as draws:
        theirs = module.forward(*given)
    try:
        ours = Program(program, weights)(*given, *draws.values)
    except CheckpointError as error:
        return str(error)
    if all(_is_close(mine, other) for mine, other in zip(ours, theirs, strict=True)):
        return None
    return "drawn with the same random numbers, its actions are others when it is saved"


def _merge(left: Any, right: Any) -> Any:
    """Combine two recordings: numbers proportional to the batch size become ``{"batch": n}``."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        return {key: _merge(left[key], right[key]) for key in left}
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [_merge(a, b) for a, b in zip(left, right, strict=True)]
    if left == right and type(left) is type(right):
        return left
    if type(left) is type(right) is int and left * _SIZES[1] == right * _SIZES[0]:
        return {"batch": left // _SIZES[0]}
    raise ConfigError(
        "the policy does different things for different observations or numbers of them, which "
        "cannot be saved: avoid Python conditions on the values of tensors."
    )


def _rename(program: dict[str, Any], renamed: Mapping[str, str]) -> None:
    """Rename values in the steps and outputs of a program."""

    def rename(value: Any) -> Any:
        if isinstance(value, list):
            return [rename(item) for item in value]
        if isinstance(value, str):
            return f"%{renamed.get(value[1:], value[1:])}"
        return value

    program["outputs"] = rename(program["outputs"])
    for step in program["steps"]:
        step[2:] = rename(step[2]), {name: rename(value) for name, value in step[3].items()}


def _used(program: Mapping[str, Any]) -> set[str]:
    """The names of all values that steps and outputs of a program read."""

    def look(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value[1:]
        elif isinstance(value, list):
            for item in value:
                yield from look(item)

    steps = [[args, *kwargs.values()] for _, _, args, kwargs in program["steps"]]
    return set(look([steps, program["outputs"]]))


def _difference(traced: Traced, module: LivePolicy, inputs: Sequence[Tensor]) -> str | None:
    """How a program differs from the policy on new inputs; None if it does not."""
    own = named_tensors(module)
    if missing := [name for name in traced.weights if name not in own]:
        return f"it has no {missing[0]}"
    program = Program(traced.program, _tensors(module, traced.weights, traced.constants))
    for batch in (inputs, [value[:1] for value in inputs]):
        try:
            own_actions = program(*batch)
        except CheckpointError as error:  # it would not be loaded either
            raise ConfigError(f"{type(module.policy).__name__} cannot be saved: {error}") from None
        for ours, theirs in zip(own_actions, module.on(batch), strict=True):
            if not _is_close(ours, theirs):
                return f"{ours.dtype}{list(ours.shape)}, not {theirs.dtype}{list(theirs.shape)}"
    return None


def _is_close(ours: Tensor, theirs: Tensor) -> bool:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    return torch.allclose(ours.double(), theirs.double(), rtol=1e-4, atol=1e-5, equal_nan=True)


def _name(key: NestedKey) -> str:
    return ".".join(parts(key))


@dataclass(frozen=True)
class Recorded:
    """The calls that a policy made for one batch.

    Attributes:
        description: Of a `Program`, whose inputs have no names yet.
        inputs: Placeholder names of the inputs, without the weights; random draws come last.
        weights: Names of all parameters and buffers.
        constants: Other tensors that it uses, by name.
    """

    description: dict[str, Any]
    inputs: list[str]
    weights: list[str]
    constants: dict[str, Tensor]


def record_calls(module: LivePolicy, inputs: Sequence[Tensor]) -> Recorded:
    """Run a policy on one batch ``[batch, ...]``, and record every operator that it calls."""
    tensors = named_tensors(module)
    module.prepare(len(inputs[0]))

    def function(weights: list[Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(tensors, weights, strict=True))
        return tuple(torch.func.functional_call(module, named, inputs))

    weights = [tensor.detach().clone() for tensor in tensors.values()]
    with _plain_operators():
        try:
            table = {**_plainer(), **(FROM_STANDARD if module.random else {})}
            graph = make_fx(function, decomposition_table=table)(weights, *inputs)
            functional = torch.func.functionalize(graph, remove="mutations")
            graph = make_fx(functional)(weights, *inputs)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"{type(module.policy).__name__} could not be run to be saved: {error}"
            ) from error
    draws = take_draws(graph.graph) if module.random else []
    graph.graph.eliminate_dead_code()
    placeholders = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    names = dict(zip(placeholders, tensors, strict=False))
    constants: dict[str, Tensor] = {}
    steps: list[Any] = []
    outputs: list[Any] = []
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            names[node.name] = f"constant.{node.target}"
            constants[names[node.name]] = getattr(graph, node.target).detach().cpu().clone()
        elif node.op == "call_function":
            args = [_plain(argument, names) for argument in node.args]
            kwargs = {name: _plain(value, names) for name, value in node.kwargs.items()}
            steps.append([node.name, _target(module.policy, node.target), args, kwargs])
        elif node.op == "output":
            outputs = [_plain(value, names) for value in node.args[0]]
    return Recorded(
        {"inputs": [], "steps": steps, "outputs": outputs, "draws": draws},
        placeholders[len(tensors) :],
        list(tensors),
        constants,
    )


@contextmanager
def _plain_operators() -> Iterator[None]:
    """Switch off processor-specific kernels and value checks, which cannot be recorded."""
    distribution, mkldnn = torch.distributions.Distribution, torch.backends.mkldnn
    checks, enabled, mha = distribution._validate_args, mkldnn.enabled, torch.backends.mha
    fast = mha.get_fastpath_enabled()
    distribution.set_default_validate_args(False)
    mkldnn.enabled = False  # type: ignore[assignment]
    mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), _OneHotByComparison():
            yield
    finally:
        distribution.set_default_validate_args(checks)
        mkldnn.enabled = enabled
        mha.set_fastpath_enabled(fast)


class _OneHotByComparison(TorchFunctionMode):
    """Replaces ``one_hot``, which checks its indices: while recording they have no values."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.nn.functional.one_hot:
            return _one_hot(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    if num_classes < 0:  # as many as the values say
        return torch.nn.functional.one_hot(tensor)
    places = torch.arange(num_classes, device=tensor.device)
    return (tensor.unsqueeze(-1) == places).to(torch.int64)


def _plainer() -> Mapping[Any, Any]:
    """Decompositions of operators that do not check their arguments."""
    aten = torch.ops.aten
    table = get_decompositions(
        [
            aten.native_batch_norm,
            aten._native_batch_norm_legit,
            aten._native_batch_norm_legit_no_training,
            aten.native_group_norm,
            aten.rrelu_with_noise,
            aten._trilinear,
            aten._weight_norm_interface,
        ]
    )
    return {**table, aten.as_strided.default: _as_view}


def _as_view(
    tensor: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Any:
    """Express ``as_strided`` as ``view`` where it only reshapes."""
    plain = torch.empty(size, device="meta")
    if offset or not tensor.is_contiguous() or plain.stride() != tuple(stride):
        return NotImplemented
    return tensor.view(size) if plain.numel() == tensor.numel() else NotImplemented


def _target(policy: nn.Module, target: Any) -> str:
    if target is operator.getitem:
        return "getitem"
    if (other := INSTEAD.get(str(target))) is not None:
        return other
    if reason := objection(target):
        raise ConfigError(
            f"{type(policy).__name__} cannot be saved: choosing the best action it calls {target}, "
            f"{reason}: use other layers or functions for that (docs/policies.md, What can be "
            "saved), or keep checkpoints instead of policies."
        )
    return str(target)


def _plain(argument: Any, names: Mapping[str, str]) -> Any:
    """An argument of a call as plain data; see `Program`."""
    if isinstance(argument, torch.fx.Node):
        return f"%{names.get(argument.name, argument.name)}"
    if isinstance(argument, (list, tuple)):
        return [_plain(item, names) for item in argument]
    if isinstance(argument, bool | int | None):
        return argument
    if isinstance(argument, float):
        return argument if abs(argument) < float("inf") else {"float": str(argument)}
    if isinstance(argument, str):
        return {"text": argument}
    for kind in ("dtype", "layout", "memory_format"):
        if isinstance(argument, getattr(torch, kind)):
            return {kind: str(argument).removeprefix("torch.")}
    if isinstance(argument, torch.device):
        return {"device": "cpu"}
    raise ConfigError(f"an argument of a policy's operator cannot be saved: {argument!r}")


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
