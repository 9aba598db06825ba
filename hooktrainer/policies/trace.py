"""Turns a policy into a `Program`: records the calls it makes of PyTorch's basic operators.

It records two batch sizes and compares them, to find the numbers that depend on the batch size.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, unravel_key
from tensordict.nn import InteractionType
from tensordict.nn.probabilistic import set_interaction_type
from torch import Tensor, nn
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._guards import TracingContext, tracing
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from ..base.tensordicts import is_sharded
from ..collect.actors import has_parameter
from ..collect.module_actor import first_states
from ..errors import CheckpointError, ConfigError
from ..networks.head import Inference
from .calls import objection
from .interface import MASK
from .program import Program

IS_INIT = "is_init"
_SIZES = (5, 7)  # batch sizes; numbers that are multiples of both at one place stand for the batch


@dataclass(frozen=True)
class Traced:
    """A policy as plain data, without its weights.

    `sampling` is the reason if random actions cannot be recorded; `state` has the initial hidden
    states without a batch dimension.
    """

    reads: tuple[NestedKey, ...]
    program: dict[str, Any]
    sampling: dict[str, Any] | str
    weights: tuple[str, ...]
    constants: Mapping[str, Tensor]
    state: Mapping[str, Tensor]


def trace(
    policy: Any,
    keys: Sequence[NestedKey],
    examples: Sequence[Tensor],
    actions: Sequence[NestedKey] = ("action",),
    former: Traced | None = None,
) -> Traced:
    """Record how a policy computes its actions from some of the observations ``keys``.

    A copy is run on the CPU with the examples, ``[at least 12, ...]`` for each key; the policy and
    the random generators do not change. ``actions`` has a key for each group of agents. A
    ``former`` recording is returned if the policy, with its current weights, still does the same;
    it does not if something other than a tensor has changed, such as a Python number.
    """
    if not isinstance(policy, nn.Module):
        raise ConfigError(
            f"the policy is a {type(policy).__name__}, and only a torch.nn.Module can be saved "
            "with its weights: make it one."
        )
    if is_sharded(policy):
        raise ConfigError(
            "the policy's parameters are shared out among processes (FSDP); it cannot be saved."
        )
    with torch.random.fork_rng(devices=[]):
        own = _Copy(policy, keys, examples, actions)
        if former is not None and all(own.difference(former, r) is None for r in (False, True)):
            return former
        program, weights, constants = own.record()
        sampling: dict[str, Any] | str
        try:
            sampling, more, drawn = own.record(random=True)
            weights, constants = weights | more, constants | drawn
        except ConfigError as error:
            sampling = str(error)
        traced = Traced(tuple(own.reads), program, sampling, tuple(weights), constants, own.state)
        if (reason := own.difference(traced)) is not None:
            raise ConfigError(
                f"{own.name} acts differently when it is saved ({reason}): does it "
                "choose by Python conditions on the values of tensors?"
            )
        if (reason := own.difference(traced, random=True)) is not None:
            traced = replace(traced, sampling=reason)
    return traced


def current_weights(policy: nn.Module, traced: Traced) -> dict[str, Tensor]:
    """Copy the tensors that a traced policy uses to the CPU."""
    live = {f"policy.{name}": tensor for name, tensor in _tensors_of(policy).items()}
    weights = {
        name: live[name].detach().cpu().clone(memory_format=torch.contiguous_format)
        for name in traced.weights
    }
    return {**weights, **traced.constants}


class _Copy(nn.Module):
    """A copy of a policy on the CPU, which PyTorch evaluates: a function of tensors.

    It takes the observations that the policy reads and its hidden states, ``[batch, ...]`` each, as
    `given` has them for the examples, and returns all actions and the next hidden states. Names of
    tensors, inputs and states have a prefix, and no step of a program has a dot in its name.
    """

    def __init__(
        self,
        policy: nn.Module,
        keys: Sequence[NestedKey],
        examples: Sequence[Tensor],
        actions: Sequence[NestedKey],
    ) -> None:
        super().__init__()
        by_key = {unravel_key(key): value for key, value in zip(keys, examples, strict=True)}
        self.reads, self.hidden = _read_keys(policy, list(by_key))
        self.actions = list(actions)
        self.name = type(policy).__name__
        self.policy = copy.deepcopy(policy).cpu().eval()
        for module in self.policy.modules():
            for value in vars(module).values():
                if isinstance(value, Inference):
                    value.use_torch()  # NumPy cannot be recorded
        states = first_states(self.policy, self.hidden, torch.device("cpu"))
        self.state = {".".join(("state", *_parts(key))): value for key, value in states.items()}
        self.given = [by_key[key] for key in self.reads]
        self.given += [value.expand(len(self.given[0]), *value.shape) for value in states.values()]
        self.inputs = [".".join(("input", *_parts(key))) for key in self.reads]
        self.inputs += self.state

    @torch.no_grad()
    def forward(self, *inputs: Tensor, random: bool = False) -> tuple[Tensor, ...]:
        """Return the best or random actions and the next hidden states, ``[batch, ...]`` each."""
        mode = InteractionType.RANDOM if random else InteractionType.DETERMINISTIC
        with set_interaction_type(mode):
            if getattr(self.policy, "in_keys", None) is None:
                out = self._call_on_observations(*inputs)
            elif not self.hidden and callable(act := getattr(self.policy, "act", None)):
                out = act(*inputs)
            else:
                return self._call_on_tensordict(*inputs)
        return tuple(out[key] for key in self.actions) if isinstance(out, Mapping) else (out,)

    def _call_on_observations(self, *inputs: Tensor) -> Any:
        """Call a function as `VectorCollector` does, with the mask if it takes one."""
        call = getattr(self.policy, "act", self.policy)
        given = dict(zip(self.reads, inputs, strict=True))
        mask = {}
        if len(given) > 1 and MASK in given and has_parameter(call, MASK):
            mask = {MASK: given.pop(MASK)}
        if len(given) == 1:
            return call(*given.values(), **mask)
        data = TensorDict({}, batch_size=[len(inputs[0])])
        return call(data.update(given).to_dict(), **mask)

    def _call_on_tensordict(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        batch = len(inputs[0])
        data = TensorDict({}, batch_size=[batch])
        data.update(dict(zip([*self.reads, *self.hidden], inputs, strict=True)))
        if IS_INIT in list(getattr(self.policy, "in_keys", ())):
            with _disable_current_modes():
                data.set(IS_INIT, torch.zeros(batch, 1, dtype=torch.bool).as_subclass(_Constant))
        data = self.policy(data)
        following = [("next", *_parts(key)) for key in self.hidden]
        return tuple(data[key] for key in [*self.actions, *following])

    def record(
        self, *, random: bool = False
    ) -> tuple[dict[str, Any], dict[str, None], dict[str, Tensor]]:
        """The description of a program, the names of its weights, and its constants."""
        (one, *rest), (other, *_) = (self._record_calls(size, random) for size in _SIZES)
        return _merge(one, other), *rest

    def _record_calls(
        self, size: int, random: bool
    ) -> tuple[dict[str, Any], dict[str, None], dict[str, Tensor]]:
        """Run the policy on one batch, and record every operator that it calls."""
        inputs = [value[:size] for value in self.given]
        tensors = _tensors_of(self)

        def function(weights: list[Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
            named = dict(zip(tensors, weights, strict=True))
            return tuple(torch.func.functional_call(self, named, inputs, {"random": random}))

        weights = [tensor.detach().clone() for tensor in tensors.values()]
        # One for all steps: by default each step makes its own, which takes most of the time.
        fakes = TracingContext(FakeTensorMode(allow_fallback_kernels=True))
        with _plain_operators(), tracing(fakes):
            try:
                record = functools.partial(make_fx, decomposition_table=_core_operators())
                graph = record(function)(weights, *inputs)
                if any(_mutates(node) for node in graph.graph.nodes):
                    functional = torch.func.functionalize(graph, remove="mutations")
                    graph = record(functional)(weights, *inputs)
            except ConfigError:
                raise
            except Exception as error:
                raise ConfigError(f"{self.name} could not be run to be saved: {error}") from error
        graph.graph.eliminate_dead_code()
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        given = list(zip(placeholders, [*tensors, *self.inputs], strict=True))
        names = {node.name: name for node, name in given}
        used = dict.fromkeys(name for node, name in given if node.users and name in tensors)
        constants: dict[str, Tensor] = {}
        steps: list[Any] = []
        outputs: list[Any] = []
        for node in graph.graph.nodes:
            if node.op == "get_attr":
                names[node.name] = f"{'sampling.' * random}constant.{node.target}"
                constants[names[node.name]] = getattr(graph, node.target).detach().cpu().clone()
            elif node.op == "call_function":
                args = [_plain(argument, names) for argument in node.args]
                kwargs = {name: _plain(value, names) for name, value in node.kwargs.items()}
                item = node.target is operator.getitem
                if not item and (reason := objection(node.target, random)):
                    raise ConfigError(
                        f"{self.name} cannot be saved: it calls {node.target}, {reason}: use other "
                        "layers or functions (docs/policies.md, What can be saved), or keep "
                        "checkpoints instead."
                    )
                steps.append([node.name, "getitem" if item else str(node.target), args, kwargs])
            elif node.op == "output":
                outputs = [_plain(value, names) for value in node.args[0]]
        return {"inputs": self.inputs, "steps": steps, "outputs": outputs}, used, constants

    def difference(self, traced: Traced, random: bool = False) -> str | None:
        """Differences of a traced policy from this one on the same inputs and random numbers."""
        description = traced.sampling if random else traced.program
        if isinstance(description, str):
            return None
        tensors = _tensors_of(self)
        if missing := [name for name in traced.weights if name not in tensors]:
            return f"it has no {missing[0]}"
        weights = {name: tensors[name].detach() for name in traced.weights}
        try:
            program = Program(description, {**weights, **traced.constants}, random=random)
            rows = zip(*(value[:, None] for value in self.given), strict=True)
            for batch in [self.given, *([] if random else rows)]:  # a batch may hide a condition
                torch.default_generator.manual_seed(0)
                ours = program(*batch)
                torch.default_generator.manual_seed(0)
                theirs = self(*batch, random=random)
                if differing := [pair for pair in zip(ours, theirs, strict=True) if _differ(*pair)]:
                    a, b = differing[0]
                    return f"{a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
        except CheckpointError as error:  # it would not be loaded either
            if random:
                return str(error)
            raise ConfigError(f"{self.name} cannot be saved: {error}") from None
        return None


def _read_keys(
    policy: nn.Module, observed: Sequence[NestedKey]
) -> tuple[list[NestedKey], list[NestedKey]]:
    """The observations that a policy reads, and its hidden states."""
    in_keys = getattr(policy, "in_keys", None)
    if in_keys is None:
        return list(observed), []
    writes = [unravel_key(key) for key in getattr(policy, "out_keys", ())]
    keys = [unravel_key(key) for key in in_keys]
    hidden = [key for key in keys if ("next", *_parts(key)) in writes]
    reads = [key for key in keys if key not in hidden and key != IS_INIT]
    if missing := [key for key in reads if key not in observed]:
        raise ConfigError(
            f"the policy reads {missing}, and the environment gives {list(observed)}: the keys "
            "must agree for the policy to be saved."
        )
    return reads, hidden


def _parts(key: NestedKey) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


class _Constant(Tensor):
    """The value of ``is_init`` while recording: no episode begins while a saved policy plays.

    What a module computes from it alone is computed at once, so that it may branch on the result.
    Combined with other tensors it has values of this batch alone, which recording refuses. Players
    reset the hidden states.
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func.__name__ == "where" and isinstance(args[0], cls):
                with _disable_current_modes():
                    return args[1] if args[0].all() else args[2]  # equal in all rows
            if not all(isinstance(a, cls) for a in args if isinstance(a, Tensor)):
                plain = [a.as_subclass(Tensor) if isinstance(a, cls) else a for a in args]
                return func(*plain, **(kwargs or {}))
            with _disable_current_modes():
                out = func(*args, **(kwargs or {}))
                if isinstance(out, Tensor):
                    return out.as_subclass(cls) if out.dim() else out.item()
                return out


def _differ(ours: Tensor, theirs: Tensor) -> bool:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return True
    return not torch.allclose(ours.double(), theirs.double(), 1e-4, 1e-5, equal_nan=True)


def _tensors_of(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


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


def _one_hot(tensor: Tensor, num_classes: int) -> Tensor:
    return (tensor.unsqueeze(-1) == torch.arange(num_classes)).to(torch.int64)


def _mutates(node: Node) -> bool:
    """Whether a step of a graph writes to one of its arguments."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


@functools.cache
def _core_operators() -> Mapping[Any, Any]:
    """Decompositions into PyTorch's core operators, and of those that check their arguments."""
    aten = torch.ops.aten
    table = dict(core_aten_decompositions()) | get_decompositions(
        [
            *(aten.native_batch_norm, aten._native_batch_norm_legit, aten.native_group_norm),
            *(aten._native_batch_norm_legit_no_training, aten.rrelu_with_noise),
            *(aten._trilinear, aten._weight_norm_interface),
        ]
    )
    table[aten.empty.memory_format] = table[aten.empty_permuted.default] = _zeros
    return {**table, aten.as_strided.default: _as_view, aten.view.dtype: _as_conversion}


def _zeros(size: Sequence[int], *_: Any, dtype: torch.dtype | None = None, **others: Any) -> Tensor:
    return torch.full(size, 0, dtype=dtype or torch.get_default_dtype())


def _as_view(
    tensor: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Any:
    """Express ``as_strided`` as ``view`` where it only reshapes."""
    plain = torch.empty(size, device="meta")
    if offset or not tensor.is_contiguous() or plain.stride() != tuple(stride):
        return NotImplemented
    return tensor.view(size) if plain.numel() == tensor.numel() else NotImplemented


def _as_conversion(tensor: Tensor, dtype: torch.dtype) -> Any:
    """Express a view of booleans as integers as a conversion, which a program may hold."""
    is_same = tensor.dtype is torch.bool and dtype is torch.uint8
    return tensor.to(dtype) if is_same else NotImplemented


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
    if isinstance(argument, torch.device):  # the loader's
        return None
    raise ConfigError(f"an argument of a policy's operator cannot be saved: {argument!r}")
