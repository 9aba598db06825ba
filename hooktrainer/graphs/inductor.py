"""How inductor compiles: with the random numbers of eager code, and kept between runs."""

from __future__ import annotations

import hashlib
import os
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict.nn.probabilistic import interaction_type
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch.nn.modules import module as _module

from .shortcut import Compiled, kind_of


class ByName(dict[Any, Any]):
    """Something for each of some operators, which inductor's cache tells apart by their names.

    Functions and operators have no bytes that could be a part of its keys, and it would keep
    nothing. What code they are is in `_conditions`.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return frozenset, (sorted(map(str, self)),)


def with_inductor(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
) -> Compiled:
    """Compile a graph, or find in inductor's cache what was compiled before.

    Args:
        module: What ``torch.compile`` gives to its backend.
        inputs: Likewise.
    """
    from torch._inductor import config, decomposition

    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    settings: dict[str, Any] = {"fallback_random": True}
    with config.patch(settings):
        table = dict(decomposition.select_decomp_table())
    own: dict[Any, Any] = {}
    if as_cuda_graph := is_cuda_graph(tensors):
        settings["triton.cudagraphs"] = True
    if all(x.is_cpu for x in tensors):
        settings["cpp_wrapper"] = True  # which calls kernels from C++
        own = {torch.ops.aten.tanh.default: _tanh, **cpu_products()}
    compile_with: Any = lookup_backend("inductor")
    keys: Any = torch.compiler.config
    with keys.patch(cache_key_tag=f"{keys.cache_key_tag} {_conditions(own)}"):
        compiled: Compiled = compile_with(
            module, inputs, config_patches=settings, decompositions=ByName(table | own)
        )
    return copied(compiled) if as_cuda_graph else compiled


def keep_between_runs() -> None:
    """Let inductor keep what it compiles where it is not deleted when the machine starts anew."""
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(path / "hooktrainer" / "inductor"))


def is_cuda_graph(inputs: Sequence[torch.Tensor]) -> bool:
    """Whether a graph is to be a CUDA graph: on such a device, if the environment asks for it."""
    return bool(os.environ.get("HOOKTRAINER_CUDA_GRAPHS")) and any(x.is_cuda for x in inputs)


def copied(compiled: Compiled) -> Compiled:
    """A CUDA graph whose results are copies: the next call writes over what it returns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch, by torch
        from torch._inductor import cudagraph_trees

    def call(*args: Any) -> Sequence[Any]:
        cudagraph_trees.mark_step_begin()
        return [x.clone() if isinstance(x, torch.Tensor) else x for x in compiled(*args)]

    return call


def _conditions(own: Mapping[Any, Any]) -> str:
    """On what a graph's code depends that not every inductor has in the keys of its cache."""
    processor, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    return f"{_this_code()} {sorted(map(str, own))} {processor} {threads}"


@cache
def _this_code() -> str:
    """A name for what is computed in place of operators."""
    files = sorted(path for path in Path(__file__).parent.iterdir() if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _tanh(x: torch.Tensor) -> torch.Tensor:
    """The hyperbolic tangent to 1e-7, in a third of the time that inductor's takes on a CPU."""
    small = torch.exp(-2 * x.abs())
    return torch.copysign((1 - small) / (1 + small), x)


# -- Which library multiplies the matrices of a graph on a CPU, where torch's choice is a slow one.

_THIN = 8
_LARGE = 2**21  # multiplications from which on oneDNN's way to begin is worth while


def cpu_products() -> dict[Any, Callable[..., Any]]:
    """Decompositions of matrix products, for inductor; they change nothing but rounding."""
    aten = torch.ops.aten
    return {aten.mm.default: _mm, aten.addmm.default: _addmm}


def _mm(a: torch.Tensor, b: torch.Tensor) -> Any:
    (m, k), n = a.shape, b.shape[1]
    if 1 < n <= _THIN < m < k:
        # The gradient of a layer of few inputs: MKL takes six times as long for few columns as for
        # few rows. Like the result of mm it is contiguous, since optimizers may ignore strides.
        return torch.ops.aten.mm(b.t(), a.t()).t().contiguous()
    return _linear(a, b, None) if _is_of_onednn(a, n) else NotImplemented


def _addmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **factors: float) -> Any:
    n = b.shape[1]
    if factors or bias.ndim != 1 or bias.shape[0] != n or not _is_of_onednn(a, n):
        return NotImplemented
    return _linear(a, b, bias)


def _linear(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> Any:
    onednn = _onednn()
    return NotImplemented if onednn is None else onednn.linear(a, b.t(), bias)


class _OneDNN(NamedTuple):
    """An operator, and what keeps it."""

    library: Any
    linear: Any


@cache
def _onednn() -> _OneDNN | None:
    """The product of oneDNN, which inductor uses for constants; ``None`` where it has none.

    Of inductor this needs what is not public, so another version of torch may do without.
    """
    try:
        from torch._inductor.ir import TensorBox
        from torch._inductor.lowering import register_lowering
        from torch._inductor.mkldnn_ir import LinearUnary
    except ImportError:
        return None

    make: Any = torch.library.Library
    library = make("hooktrainer", "FRAGMENT")
    library.define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
    library.impl(
        "linear",
        lambda x, weight, bias: x.new_empty(x.shape[0], weight.shape[0]),
        "Meta",
    )
    library.impl(
        "linear",
        lambda *given: torch.ops.mkldnn._linear_pointwise(*given, "none", [], ""),
        "CPU",
    )
    operator = torch.ops.hooktrainer.linear.default

    @register_lowering(operator, type_promotion_kind=None)
    def lower(x: Any, weight: Any, bias: Any) -> Any:
        made: Any = LinearUnary
        return TensorBox.create(made.create(x, weight, bias, "none", [], ""))

    return _OneDNN(library, operator)


def _is_of_onednn(a: torch.Tensor, n: int) -> bool:
    """Whether oneDNN is quicker: MKL leaves half of the registers unused on AMD's processors."""
    m, k = a.shape
    return (
        a.dtype is torch.float32
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and m * k * n >= _LARGE
        and m >= k >= 2 * _THIN
        and n >= 2 * _THIN
    )


# -- `Structure`: what a trace of a function depends on, but for the numbers in tensors.


# Code that reads nothing that can change but attributes; that of others may read anything.
_KNOWN = frozenset(("hooktrainer", "torch", "tensordict", "gymnasium", "numpy", "builtins", "abc"))
_KNOWN |= {"types", "typing", "functools", "collections"}
_PLAIN = (
    *(bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType, Enum),
    *(torch.dtype, torch.device, torch.Size, torch.layout, np.dtype, np.generic),
)
# Of every module; they are changed in place, never replaced.
_REGISTRIES = frozenset(vars(nn.Module())) - {"training"}
_OF_ALL_MODULES = (
    _module._global_forward_hooks,
    _module._global_forward_pre_hooks,
    _module._global_backward_hooks,
    _module._global_backward_pre_hooks,
)
_LARGEST_ARRAY = 1 << 16  # bytes


class Structure:
    """What a trace of a function depends on, but for its arguments and the numbers in tensors.

    This is all code, attributes, closures and containers that can be reached from it. Its truth
    value is whether they are unchanged, found in a fifth of the time of ``torch.compile``'s guards.
    Two structures of one process, or of one and its fork, with the same `key` have the same trace.
    Attributes that an object's ``not_in_graphs`` names are left out.

    Args:
        root: A module or a function.

    Raises:
        LookupError: If something is reached that it cannot follow, such as a user's code.

    Attributes:
        tensors: The tensors, in the order in which they are reached.
    """

    def __init__(self, root: Any) -> None:
        self.tensors: list[torch.Tensor] = []
        self._parts: list[Any] = []
        self._seen: dict[int, tuple[int, Any]] = {}
        self._objects: list[dict[str, Any]] = []  # the attributes of each
        self._places: list[tuple[dict[str, Any], str]] = []  # where an attribute is
        self._filled: list[Any] = []  # containers
        self._empty: list[Any] = list(_OF_ALL_MODULES)
        self._arrays: list[tuple[np.ndarray, bytes]] = []
        self._exploration = interaction_type()
        self._look(root)
        self._seen.clear()
        self._values = [owner[name] for owner, name in self._places]
        self._owners = [owner for owner, _ in self._places]
        self._names = [name for _, name in self._places]
        self._numbers = [*map(len, self._objects)]
        # A copy of an ordered dict leaves the order out, which makes comparing fast.
        self._copies = [dict(x) if isinstance(x, dict) else x.copy() for x in self._filled]
        self._modes = torch._C._dynamo.guards.GlobalStateGuard()  # which torch.compile reads

    @property
    def key(self) -> tuple[Any, ...]:
        """Code, plain values and kinds of tensors, in the order in which they are reached."""
        modes = (
            torch.get_default_dtype(),
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            torch.is_autocast_enabled("cpu"),
            self._exploration,
        )
        return (*modes, *self._parts)

    def __bool__(self) -> bool:
        """Return whether nothing has changed since this was made."""
        # Comparing lists takes identical items for equal, without Python code for each attribute.
        if any(self._empty) or not self._modes.check():
            return False
        if interaction_type() is not self._exploration:
            return False
        try:
            return (
                [*map(len, self._objects)] == self._numbers
                and [*map(getitem, self._owners, self._names)] == self._values
                and self._filled == self._copies
                and all(array.tobytes() == before for array, before in self._arrays)
            )
        except (KeyError, RuntimeError, ValueError):  # one is gone, or an array in its place
            return False

    def _look(self, value: Any) -> None:
        kind = type(value)
        if isinstance(value, _PLAIN):
            self._parts += (kind, value)
            return
        if id(value) in self._seen:
            self._parts += ("seen", self._seen[id(value)][0])
            return
        self._seen[id(value)] = len(self._seen), value
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            self._parts.append(kind_of(value))
        elif isinstance(value, np.ndarray) and value.nbytes <= _LARGEST_ARRAY:
            self._arrays.append((value, value.tobytes()))
            self._parts += (value.dtype.str, value.shape, value.tobytes())
        elif isinstance(value, (type, types.BuiltinFunctionType)):
            _check_known(value)
            self._parts.append(value)
        elif isinstance(value, types.FunctionType):
            _check_known(value)
            self._parts.append(value.__code__)
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            self._look_at_all([*cells, value.__defaults__, value.__kwdefaults__])
        elif isinstance(value, types.MethodType):
            self._look_at_all((value.__func__, value.__self__))
        elif isinstance(value, partial):
            self._look_at_all((value.func, value.args, value.keywords))
        elif isinstance(value, (dict, list, set, tuple, frozenset)):
            self._look_at_container(value)
        elif _is_plain_object(value):
            _check_known(kind)
            self._look_at_attributes(value)
        else:
            raise LookupError(f"a {kind.__name__}")

    def _look_at_container(self, value: Any) -> None:
        self._parts += (type(value), len(value))
        if not isinstance(value, (tuple, frozenset)):
            (self._filled if value else self._empty).append(value)
        if isinstance(value, dict):
            self._look_at_all(part for item in value.items() for part in item)
        elif isinstance(value, (set, frozenset)):
            self._parts.append(frozenset(value))  # of values that are equal in a fork, or no key
            self._look_at_all(part for part in value if not isinstance(part, _PLAIN))
        else:
            self._look_at_all(value)

    def _look_at_attributes(self, value: Any) -> None:
        """Look at an object's attributes; of a module's registries only at their content."""
        attributes = vars(value)
        self._objects.append(attributes)
        registries = _REGISTRIES if isinstance(value, nn.Module) else ()
        unread = getattr(value, "not_in_graphs", ())
        self._parts.append(type(value))
        for name, part in attributes.items():
            if name in unread:
                continue
            if name not in registries:
                self._places.append((attributes, name))
            self._parts.append(name)
            self._look(part)

    def _look_at_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self._look(value)


def _is_plain_object(value: Any) -> bool:
    """Whether all that an object consists of is in its ``__dict__``."""
    if type(value) is types.SimpleNamespace:
        return True
    bases = [each for each in type(value).__mro__ if each is not object]
    elsewhere = any(
        each.__dict__.get("__slots__") or each.__module__ == "builtins" for each in bases
    )
    return hasattr(value, "__dict__") and not elsewhere


def _check_known(code: Any) -> None:
    """Refuse a class or a function of somebody else's."""
    parts: Sequence[Any] = code.__mro__ if isinstance(code, type) else (code,)
    for part in parts:
        package = str(part.__module__).partition(".")[0]
        if package not in _KNOWN and type(code) is not types.BuiltinFunctionType:
            raise LookupError(f"{part!r}")
