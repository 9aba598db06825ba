"""Records what a policy does with one batch: a list of calls of PyTorch's basic operators."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from ..errors import ConfigError
from .calls import INSTEAD, objection
from .draws import FROM_STANDARD, take_draws
from .live import LivePolicy


@dataclass(frozen=True)
class Recorded:
    """What a policy did with one batch.

    Attributes:
        description: That of a `Program`, whose inputs are not named yet.
        inputs: What the inputs are called in it, behind the weights; those that stand for what it
            draws come last.
        weights: Names of all parameters and buffers.
        constants: Other tensors that it uses, by name.
    """

    description: dict[str, Any]
    inputs: list[str]
    weights: list[str]
    constants: dict[str, Tensor]


def record_calls(module: LivePolicy, inputs: Sequence[Tensor]) -> Recorded:
    """Run a policy on one batch, and write down every operator that it calls.

    Args:
        module: The policy, as a function of tensors.
        inputs: Tensors ``[batch, ...]``.

    Raises:
        ConfigError: If it cannot be run, or calls what no program may.
    """
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
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"{type(module.policy).__name__} could not be run to be saved: {error}"
            ) from error
    draws = take_draws(graph.graph) if module.random else []
    _without_mutation(graph.graph)
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
    """In the block, recurrent layers and attention use no operators of one kind of processor.

    And distributions do not look at the values of their arguments, which have none while recording.
    """
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
    """In the block, ``one_hot`` does not look whether its indices are within bounds.

    It would by their values, which have none while recording.
    """

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
    """How operators that trust their arguments are made of such as check them."""
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
    """What ``as_strided`` does where it only gives a tensor another shape, or the same."""
    plain = torch.empty(size, device="meta")
    if offset or not tensor.is_contiguous() or plain.stride() != tuple(stride):
        return NotImplemented
    return tensor.view(size) if plain.numel() == tensor.numel() else NotImplemented


def _without_mutation(graph: torch.fx.Graph) -> None:
    """Replace what writes to its first argument by what returns the result.

    Other views of that argument are not looked at; the program is compared with the policy later.
    """
    nodes = list(graph.nodes)
    for place, node in enumerate(nodes):
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            continue
        pure = _pure(schema)
        if pure is None:
            continue  # it is refused later
        with graph.inserting_before(node):
            new = graph.call_function(pure, node.args, node.kwargs)
        after = set(nodes[place + 1 :])
        node.replace_all_uses_with(new)
        node.args[0].replace_all_uses_with(new, delete_user_cb=after.__contains__)
        graph.erase_node(node)


def _pure(schema: Any) -> Any:
    """The operator of the same name, without the underscore, that takes the same."""
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::").removesuffix("_"), None)
    types = [str(argument.type) for argument in schema.arguments]
    for name in packet.overloads() if packet is not None else ():
        found = getattr(packet, name)
        own = found._schema
        if not own.is_mutable and [str(argument.type) for argument in own.arguments] == types:
            return found
    return None


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
