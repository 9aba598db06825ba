"""`Graph`: a function as one compiled graph, and how it is called in no time."""

from __future__ import annotations

import logging
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch

from .inductor import Compiled, keep_between_runs, with_inductor
from .structure import Structure, kind_of

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
        say: Called with a line before and after compiling.
    """

    not_in_graphs: ClassVar = frozenset(("_function", "_say", "_structure", "_made", "_traced"))
    not_in_graphs |= {"_fixed"}

    def __init__(self, function: Callable[..., T], what: str, say: Callable[[str], None]) -> None:
        self._function, self._what, self._say = function, what, say
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
        given, form = _taken_apart(args)
        traced = self._traced
        if traced is None or not self._structure or not traced.takes(given, form):
            traced = self._find(args)
        out: T = traced([*given, *self._fixed])
        return out

    def again(self, *args: Any) -> T:
        """Call the function, with tensors like those of the last call."""
        if self._traced is None:
            return self(*args)
        out: T = self._traced([*_taken_apart(args)[0], *self._fixed])
        return out

    def _find(self, args: tuple[Any, ...]) -> _Traced:
        """Find the graph for these arguments, or make it."""
        structure = Structure(self._function)
        known = [*self._made.get(structure.key, ()), *_kept.get(structure.key, ())]
        traced = next((one for one in known if one.takes(*_taken_apart(args))), None)
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
        self._say(f"compiling {self._what} ...")
        try:
            with torch.random.fork_rng():
                traced = _Traced(self._function, args, structure.tensors)
        except Exception as error:
            raise CannotCompileError(_reason(error)) from error
        if not structure:
            raise CannotCompileError(f"{self._what} changes an attribute, which a graph does not")
        self._say(f"compiled {self._what} in {time.perf_counter() - start:.0f} s")
        return traced


class _Traced:
    """The graph of a function for arguments like some.

    Attributes:
        fixed: Places of its further inputs among the tensors of the function's structure.
    """

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], reached: Sequence[torch.Tensor]
    ) -> None:
        from torch._export.utils import _compiling_state_context
        from torch.fx.experimental.proxy_tensor import make_fx

        given, self._form = _taken_apart(args)
        template = _template(args, count())
        # Many are the same tensors at every call; weakly, since others are those of a batch.
        self._kinds = [(weakref.ref(tensor), kind_of(tensor)) for tensor in given]

        def flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
            result = function(*_filled(template, tensors))
            self._result = _template(result, count())
            return _taken_apart(result)[0]

        make: Any = make_fx(flat, tracing_mode="fake", _allow_non_fake_inputs=True)
        with torch.no_grad(), _compiling_state_context():
            module = make(*given)
        self.fixed = _lift(module, reached)
        if BACKEND == "eager":
            self._compiled: Compiled = module
            return
        keep_between_runs()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch, by torch
            inputs = [*given, *(reached[place] for place in self.fixed)]
            self._compiled = with_inductor(module, inputs)

    def takes(self, given: Sequence[torch.Tensor], form: list[Any]) -> bool:
        """Return whether the arguments are like those traced, but for numbers in tensors."""
        return form == self._form and all(
            seen() is tensor or kind == kind_of(tensor)
            for tensor, (seen, kind) in zip(given, self._kinds, strict=True)
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
        return _filled(self._result, outputs)


def _lift(module: torch.fx.GraphModule, reached: Sequence[torch.Tensor]) -> list[int]:
    """Make inputs of the tensors that a trace has met; return their places among those reached.

    Others are literals of the code and stay constants.
    """
    places = {id(tensor): place for place, tensor in enumerate(reached)}
    graph = module.graph
    lifted: list[int] = []
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    graph.eliminate_dead_code()  # such as networks' own parameters, which were exchanged
    for node in graph.find_nodes(op="get_attr"):
        place = places.get(id(getattr(module, node.target)))
        if place is not None:
            with graph.inserting_after(last):
                last = graph.placeholder(f"fixed_{len(lifted)}")
            last.meta = node.meta
            node.replace_all_uses_with(last)
            graph.erase_node(node)
            lifted.append(place)
    module.recompile()
    return lifted


class _Place(int):
    """Index of a tensor in a list."""


def _taken_apart(tree: Any) -> tuple[list[torch.Tensor], list[Any]]:
    """Return the tensors in containers, and the rest: lengths, keys, plain values."""
    tensors: list[torch.Tensor] = []
    form: list[Any] = []
    _take_apart(tree, tensors, form)
    return tensors, form


def _take_apart(tree: Any, tensors: list[torch.Tensor], form: list[Any]) -> None:
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
        form.append(_Place)
    elif isinstance(tree, dict):
        form.append([*tree])
        for value in tree.values():
            _take_apart(value, tensors, form)
    elif isinstance(tree, (list, tuple)):
        form.append(len(tree))
        for value in tree:
            _take_apart(value, tensors, form)
    else:
        form.append(tree)


def _template(tree: Any, places: Iterator[int]) -> Any:
    """Return the containers with places instead of tensors; `_filled` puts tensors there."""
    if isinstance(tree, torch.Tensor):
        return _Place(next(places))
    if isinstance(tree, dict):
        return {key: _template(value, places) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return _like(tree, [_template(value, places) for value in tree])
    return tree


def _filled(template: Any, tensors: Sequence[torch.Tensor]) -> Any:
    kind = type(template)
    if kind is _Place:
        return tensors[template]
    if kind is dict:
        return {key: _filled(value, tensors) for key, value in template.items()}
    if isinstance(template, (list, tuple)):
        return _like(template, [_filled(value, tensors) for value in template])
    return template


def _like(tree: list[Any] | tuple[Any, ...], values: list[Any]) -> Any:
    if isinstance(tree, list):
        return values
    return type(tree)(*values) if hasattr(tree, "_fields") else tuple(values)


class GraphOr(Generic[T]):
    """A `Graph`, or the function itself with one warning if it cannot be compiled."""

    def __init__(self, function: Callable[..., T], what: str, say: Callable[[str], None]) -> None:
        self._function, self._what = function, what
        self._graph: Graph[T] | None = Graph(function, what, say)

    def __call__(self, *args: Any) -> T:
        """Call the function."""
        if self._graph is not None:
            try:
                return self._graph(*args)
            except CannotCompileError as error:
                self._graph = None
                _log.warning("%s cannot be compiled, and is made eagerly: %s", self._what, error)
        return self._function(*args)


def quiet(line: str) -> None:
    """Print nothing."""


def _reason(error: Exception) -> str:
    """Return the first line of an error, and its place in the user's code."""
    said = next(filter(None, str(error).splitlines()), type(error).__name__).strip()
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(ours)]
    if not theirs:
        return said
    return f'{said} (File "{theirs[-1].filename}", line {theirs[-1].lineno}, in {theirs[-1].name})'


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
