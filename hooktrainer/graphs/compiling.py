"""`Graph`: a function as one compiled graph."""

from __future__ import annotations

import logging
import pickle
import random
import time
import traceback
import types
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from operator import attrgetter, getitem
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from tensordict.nn.probabilistic import interaction_type
from torch import nn
from torch.nn.modules import module as _module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from ..base.frames_bar import print_line
from .inductor import Compiled, keep_between_runs, with_inductor

# -- `Structure`: everything that a trace of a function depends on.

_PLAIN = (
    *(bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType, Enum, type),
    *(torch.dtype, torch.device, torch.Size, torch.layout, np.dtype, np.generic),
    *(types.BuiltinFunctionType, types.CodeType),
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
    """The dependencies of a function's trace, except its arguments and the numbers in tensors.

    This is all code, attributes, closures and containers that can be reached from it; of an object
    without attributes, such as an iterator, only its identity. Global variables, attributes of
    classes and attributes that ``not_in_graphs`` names are left out. Its truth value is whether all
    of it is unchanged. Two structures of one process, or of one and its fork, with the same `key`
    have the same trace.

    Args:
        root: A module or a function.

    Attributes:
        tensors: The tensors, in the order in which they are reached.
    """

    def __init__(self, root: Any) -> None:
        self.tensors: list[torch.Tensor] = []
        self._parts: list[Any] = []
        self._seen: dict[int, tuple[int, Any]] = {}
        self._objects: list[dict[str, Any]] = []  # the attributes of each
        self._places: list[tuple[dict[str, Any], str]] = []  # where an attribute is
        self._containers: list[Any] = list(_OF_ALL_MODULES)
        self._arrays: list[tuple[np.ndarray, bytes]] = []
        self._reads: list[tuple[Callable[[Any], Any], Any]] = []  # of what no place is known
        self._modes = _modes()
        self._visit(root)
        self._seen.clear()
        self._owners = [owner for owner, _ in self._places]
        self._names = [name for _, name in self._places]
        self._values = [*map(getitem, self._owners, self._names)]
        self._numbers = [*map(len, self._objects)]
        self._found = [read(value) for read, value in self._reads]
        # A copy of an ordered dict leaves the order out, which makes comparing fast.
        self._copies = [dict(x) if isinstance(x, dict) else x.copy() for x in self._containers]

    @property
    def key(self) -> tuple[Any, ...]:
        """Code, plain values and kinds of tensors, in the order in which they are reached."""
        return (*self._modes, *self._parts)

    def __bool__(self) -> bool:
        """Return whether nothing has changed since this was made."""
        # Comparing lists takes identical items for equal, without Python code for each attribute.
        try:
            return (
                _modes() == self._modes
                and [*map(len, self._objects)] == self._numbers
                and [*map(getitem, self._owners, self._names)] == self._values
                and self._containers == self._copies
                and [read(value) for read, value in self._reads] == self._found
                and all(array.tobytes() == before for array, before in self._arrays)
            )
        except (KeyError, RuntimeError, ValueError):  # one is gone, or an array in its place
            return False

    def _visit(self, value: Any) -> None:
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
        elif isinstance(value, types.FunctionType):
            self._read(_of_function, value)
        elif isinstance(value, types.MethodType):
            self._visit_all((value.__func__, value.__self__))
        elif isinstance(value, partial):
            self._visit_all((value.func, value.args, value.keywords))
        elif isinstance(value, (dict, list, set, tuple, frozenset, deque)):
            self._visit_container(value)
        elif hasattr(value, "__dict__") and kind is not types.ModuleType:
            self._visit_attributes(value)
        else:
            self._parts += (kind, id(value))
            if isinstance(value, np.random.Generator):
                self._reads.append((attrgetter("bit_generator.state"), value))
            elif hasattr(kind, "__slots__"):
                self._read(_of_slots, value)

    def _read(self, read: Callable[[Any], tuple[Any, ...]], value: Any) -> None:
        self._reads.append((read, value))
        self._visit_all(read(value))

    def _visit_container(self, value: Any) -> None:
        self._parts += (type(value), len(value))
        if not isinstance(value, (tuple, frozenset)):
            self._containers.append(value)
        if isinstance(value, dict):
            self._visit_all(part for item in value.items() for part in item)
        elif isinstance(value, (set, frozenset)):
            self._parts.append(frozenset(value))  # of values that are equal in a fork, or no key
            self._visit_all(part for part in value if not isinstance(part, _PLAIN))
        else:
            self._visit_all(value)

    def _visit_attributes(self, value: Any) -> None:
        """Visit an object's attributes; of a module's registries only their content."""
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
            self._visit(part)

    def _visit_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self._visit(value)


def _of_function(function: types.FunctionType) -> tuple[Any, ...]:
    """Return a function's code, its defaults and the values in its closure."""
    found = [function.__code__, function.__defaults__, function.__kwdefaults__]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # an empty cell
            found.append(cell.cell_contents)
    return tuple(found)


def _of_slots(value: Any) -> tuple[Any, ...]:
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return tuple(getattr(value, name, None) for name in names)


def _modes() -> tuple[Any, ...]:
    """Return the global state of torch and tensordict that a trace depends on."""
    return (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.is_autocast_enabled("cpu"),
        interaction_type(),
    )


def kind_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the properties of a tensor that a graph is specialized for."""
    layout = tensor.stride() if tensor.layout is torch.strided else None
    return type(tensor), tensor.dtype, tensor.shape, layout, tensor.device, tensor.requires_grad


BACKEND: str | None = "inductor"
"""``"inductor"``, ``"eager"`` to compute traced graphs, or ``None`` to trace nothing."""
_MOST = 8  # graphs of one function
_log = logging.getLogger(__name__)
T = TypeVar("T")


class CannotCompileError(RuntimeError):
    """Why something cannot be compiled, in one line."""


class Graph(Generic[T]):
    """A function as one compiled graph, without gradient.

    It is traced and compiled at its first call, for the shapes of this call alone. Later calls
    check that what the trace depends on, such as attributes of modules, is unchanged; see
    `Structure`. `again` leaves that out.

    Args:
        function: What is compiled. It draws the random numbers that it would draw eagerly. It may
            write into tensors, but has no other side effects.
        what: Its name, for messages.
    """

    not_in_graphs: ClassVar = frozenset(("_function", "_structure", "_made", "_traced", "_fixed"))

    def __init__(self, function: Callable[..., T], what: str) -> None:
        self._function, self._what = function, what
        self._made: dict[Any, list[_Traced]] = {}  # by the key of their structure
        self._structure: Structure | None = None
        self._traced: _Traced | None = None  # that was called last
        self._fixed: list[torch.Tensor] = []  # its inputs that are no arguments

    def __call__(self, *args: Any) -> T:
        """Call the function.

        Raises:
            CannotCompileError: If it cannot be compiled, or is recompiled again and again.
        """
        if BACKEND is None:
            with torch.no_grad():
                return self._function(*args)
        given, form = _flatten(args)
        traced = self._traced
        if traced is None or not self._structure or not traced.takes(given, form):
            traced = self._find(args)
        out: T = traced([*given, *self._fixed])
        return out

    def again(self, *args: Any) -> T:
        """Call the function, with tensors like those of the last call."""
        if self._traced is None:
            return self(*args)
        out: T = self._traced([*_flatten(args)[0], *self._fixed])
        return out

    def _find(self, args: tuple[Any, ...]) -> _Traced:
        """Find the graph for these arguments, or make it."""
        structure = Structure(self._function)
        known = [*self._made.get(structure.key, ()), *_kept.get(structure.key, ())]
        traced = next((one for one in known if one.takes(*_flatten(args))), None)
        if traced is None:
            traced = self._make(structure, args)
            for made in (self._made, *([_kept] if _is_keeping else [])):
                made.setdefault(structure.key, []).append(traced)
        self._structure, self._traced = structure, traced
        self._fixed = [structure.tensors[place] for place in traced.fixed]
        return traced

    def _make(self, structure: Structure, args: tuple[Any, ...]) -> _Traced:
        if sum(map(len, self._made.values())) >= _MOST:
            raise CannotCompileError(
                f"{self._what} was recompiled again and again, because something that is no tensor "
                "changes: make it a buffer of the module"
            )
        start = time.perf_counter()
        print_line(f"compiling {self._what} ...")
        try:
            with torch.random.fork_rng():
                traced = _Traced(self._function, args, structure.tensors)
        except Exception as error:
            raise CannotCompileError(_reason(error)) from error
        if not structure:
            raise CannotCompileError(f"{self._what} changes an attribute, which a graph does not")
        print_line(f"compiled {self._what} in {time.perf_counter() - start:.0f} s")
        return traced


class _Traced:
    """The graph of a function, specialized for the properties of some arguments.

    Attributes:
        fixed: Places of its further inputs among the tensors of the function's structure.
    """

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], reached: Sequence[torch.Tensor]
    ) -> None:
        from torch._export.utils import _compiling_state_context
        from torch.fx.experimental.proxy_tensor import make_fx

        given, self._form = _flatten(args)
        # Many are the same tensors at every call; weakly, since others are those of a batch.
        self._kinds = [(weakref.ref(tensor), kind_of(tensor)) for tensor in given]

        def flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
            inputs = {id(x): y for x, y in zip(reached, tensors[len(given) :], strict=True)}
            with _ReplaceTensors(inputs), _NoLists():
                result = function(*_unflatten(self._form, tensors))
            outputs, self._result = _flatten(result)
            return [inputs.get(id(x), x) for x in outputs]

        make: Any = make_fx(flat, tracing_mode="fake", _allow_non_fake_inputs=True)
        python, numpy = random.getstate(), np.random.get_state(legacy=False)
        before = pickle.dumps((python, numpy))
        try:
            with torch.no_grad(), _compiling_state_context():
                # Detached, one tensor given twice is two inputs: at the next call it may be two.
                module = make(*(tensor.detach() for tensor in (*given, *reached)))
            after = pickle.dumps((random.getstate(), np.random.get_state(legacy=False)))
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
        if after != before:  # they would be constants
            raise CannotCompileError("it draws random numbers of Python or NumPy, not PyTorch")
        self.fixed = _drop_unused(module, len(given))
        if BACKEND == "eager":
            self._compiled: Compiled = module
            return
        keep_between_runs()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch, by torch
            inputs = [*given, *(reached[place] for place in self.fixed)]
            self._compiled = with_inductor(module, inputs)

    def takes(self, given: Sequence[torch.Tensor], form: Any) -> bool:
        """Return whether the arguments are like those traced, but for numbers in tensors."""
        return (
            len(given) == len(self._kinds)
            and form == self._form
            and all(
                seen() is tensor or kind == kind_of(tensor)
                for tensor, (seen, kind) in zip(given, self._kinds, strict=True)
            )
        )

    def __call__(self, inputs: Sequence[torch.Tensor]) -> Any:
        """Call the function without gradient."""
        # What torch.no_grad does, which takes as long as all the rest here.
        with_grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            outputs = self._compiled(*inputs)
        finally:
            torch._C._set_grad_enabled(with_grad)
        return _unflatten(self._result, outputs)


class _ReplaceTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Passes operators the trace's inputs in place of the tensors of a structure.

    The trace would take those for constants, whose numbers stay those of the first call.
    """

    def __init__(self, inputs: dict[int, torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._inputs = inputs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (args, kwargs or {})
        args, kwargs = tree_map_only(torch.Tensor, lambda x: self._inputs.get(id(x), x), given)
        return func(*args, **kwargs)


class _NoLists(TorchFunctionMode):
    """Makes ``tolist`` call an operator, so that `_ReplaceTensors` sees the tensor it reads."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.tolist:
            args = (args[0].clone(),)
        return func(*args, **(kwargs or {}))


def _drop_unused(module: torch.fx.GraphModule, first: int) -> list[int]:
    """Remove the unused inputs of a trace, from number ``first`` on; return the others' places."""
    graph = module.graph
    graph.eliminate_dead_code()  # such as networks' own parameters, which were exchanged
    inputs = [*graph.find_nodes(op="placeholder")][first:]
    used = [place for place, node in enumerate(inputs) if node.users]
    for node in inputs:
        if not node.users:
            graph.erase_node(node)
    module.recompile()
    return used


@dataclass(frozen=True)
class _Place:
    """Index of a tensor in a list."""

    index: int


_place = cache(_Place)


def _flatten(tree: Any) -> tuple[list[torch.Tensor], Any]:
    """Return the tensors in nested containers, and the template for `_unflatten`."""
    tensors: list[torch.Tensor] = []
    return tensors, _template(tree, tensors)


def _template(tree: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
        return _place(len(tensors) - 1)
    if isinstance(tree, dict):
        return {key: _template(value, tensors) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return _like(tree, [_template(value, tensors) for value in tree])
    return tree


def _unflatten(template: Any, tensors: Sequence[torch.Tensor]) -> Any:
    kind = type(template)
    if kind is _Place:
        return tensors[template.index]
    if kind is dict:
        return {key: _unflatten(value, tensors) for key, value in template.items()}
    if isinstance(template, (list, tuple)):
        return _like(template, [_unflatten(value, tensors) for value in template])
    return template


def _like(tree: list[Any] | tuple[Any, ...], values: list[Any]) -> Any:
    if isinstance(tree, list):
        return values
    return type(tree)(*values) if hasattr(tree, "_fields") else tuple(values)


class GraphOr(Generic[T]):
    """A `Graph`, or the function itself with one warning if it cannot be compiled."""

    def __init__(self, function: Callable[..., T], what: str) -> None:
        self._function, self._what = function, what
        self._graph: Graph[T] | None = Graph(function, what)

    def __call__(self, *args: Any) -> T:
        """Call the function."""
        if self._graph is not None:
            try:
                return self._graph(*args)
            except CannotCompileError as error:
                self._graph = None
                _log.warning("%s cannot be compiled, and is made eagerly: %s", self._what, error)
        return self._function(*args)


def _reason(error: Exception) -> str:
    """Return the first line of an error, and its place in the user's code."""
    text = next(filter(None, str(error).splitlines()), type(error).__name__).strip()
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(ours)]
    if not theirs:
        return text
    return f'{text} (File "{theirs[-1].filename}", line {theirs[-1].lineno}, in {theirs[-1].name})'


# -- Graphs that forked processes inherit: a function of the same structure is not compiled again.

_kept: dict[Any, list[_Traced]] = {}
_is_keeping = False


@contextmanager
def keep_for_forks() -> Iterator[None]:
    """Keep the graphs that are compiled in the block, for the processes that are forked later."""
    global _is_keeping
    _is_keeping = True
    try:
        yield
    finally:
        _is_keeping = False
