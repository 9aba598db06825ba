"""`Graph`: a function as one compiled graph, and how it is called in no time."""

from __future__ import annotations

import logging
import time
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.exc import FailOnRecompileLimitHit

from .inductor import Structure, keep_between_runs, with_inductor
from .shortcut import Compiled, Shortcut

BACKEND: str | None = "inductor"
"""The backend of ``torch.compile``; ``None`` computes what would be compiled, to look into it."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


class CannotCompileError(RuntimeError):
    """Why something cannot be compiled, in one line."""


class Graph(Generic[T]):
    """A function as one compiled graph, without gradient.

    It is compiled at its first call, for the shapes of this call alone. Later calls check that what
    the graph depends on, such as attributes of modules, is unchanged; `again` leaves that out.

    Args:
        function: What is compiled. It draws the random numbers that it would draw eagerly.
        what: Its name, for messages.
        say: Called with a line before and after compiling.
        module: If given, the function depends on nothing that can change but it and the arguments.
    """

    not_in_graphs: ClassVar = frozenset(("_call", "_function", "_root", "_say", "_seen"))
    not_in_graphs |= {"_is_compiled", "_shortcut", "_unchanged"}

    def __init__(
        self,
        function: Callable[..., T],
        what: str,
        say: Callable[[str], None],
        module: nn.Module | None = None,
    ) -> None:
        self._what, self._say = what, say
        self._function = function
        self._root: Any = function if module is None else module
        self._unchanged: Structure | None = None
        self._is_compiled = BACKEND is None
        self._seen: tuple[Any, ...] = ()  # a graph that was called, its inputs and its outputs
        self._shortcut: Shortcut | None = None
        self._call = function
        if BACKEND is not None:
            keep_between_runs()
            self._call = torch.compile(
                _apart(function), fullgraph=True, dynamic=False, backend=self._compile
            )

    def __call__(self, *args: Any) -> T:
        """Call the function.

        Raises:
            CannotCompileError: If it cannot be compiled, or is recompiled again and again.
        """
        if self._unchanged and self._shortcut is not None and self._shortcut.takes(args):
            out: T = self._shortcut(args)
            return out
        return self._look_anew(args)

    def again(self, *args: Any) -> T:
        """Call the function, with tensors like those of the last call."""
        return self(*args) if self._shortcut is None else self._shortcut(args)

    def _look_anew(self, args: tuple[Any, ...]) -> T:
        """Call the function through ``torch.compile``, and find the shortcut past it."""
        inherited = None
        if not self._is_compiled and _kept:
            inherited = self._shortcut = _inherited(self._function, args)
        if inherited is not None:
            out: T = inherited(args)
        else:
            with torch.no_grad():
                out = self._compiled(args)
            if self._seen and (self._shortcut is None or not self._shortcut.calls(*self._seen[:2])):
                self._shortcut = Shortcut.found(*self._seen, args, out)
                if self._shortcut is not None and _is_keeping:
                    _keep(self._function, self._shortcut)
            self._seen = ()
        if self._shortcut is not None and self._root is not None:
            try:
                self._unchanged = Structure(self._root)
            except LookupError:
                self._root = None
        return out

    def _compiled(self, args: tuple[Any, ...]) -> T:
        if self._is_compiled:
            try:
                return self._call(*args)
            except FailOnRecompileLimitHit as error:
                raise CannotCompileError(
                    f"{self._what} was recompiled again and again, because something that is no "
                    "tensor changes: make it a buffer of the module"
                ) from error
        start = time.perf_counter()
        self._say(f"compiling {self._what} ...")
        try:
            out = self._call(*args)
        except Exception as error:
            raise CannotCompileError(_reason(error)) from error
        self._say(f"compiled {self._what} in {time.perf_counter() - start:.0f} s")
        self._is_compiled = True
        return out

    def _compile(self, module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Compiled:
        assert BACKEND is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch, by torch
            make: Any = with_inductor if BACKEND == "inductor" else lookup_backend(BACKEND)
            compiled: Compiled = make(module, inputs)

        def call(*args: Any) -> Any:
            out = compiled(*args)
            self._seen = (compiled, args, out)
            return out

        return call


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


def _apart(function: Callable[..., T]) -> Callable[..., T]:
    """Return the function with its own code object, by which torch keeps and counts graphs."""

    def call(*args: Any) -> T:
        return function(*args)

    own = call.__code__.replace(co_name=call.__name__)
    return types.FunctionType(own, globals(), closure=call.__closure__)


def _reason(error: Exception) -> str:
    """Return the first line of a compiler's error, and its place in the user's code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("backend=")]
    said = lines[0] if lines else type(error).__name__
    for place, line in enumerate(lines):
        if line.startswith("from user code"):
            files = [each for each in lines[place + 1 :] if each.startswith("File ")]
            if files:
                return f"{said} ({files[-1]})"
    return said


# -- Graphs that forked processes inherit: a function of the same structure is not compiled again.

_kept: dict[tuple[Any, ...], Shortcut] = {}
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


def _keep(function: Callable[..., Any], shortcut: Shortcut) -> None:
    with suppress(LookupError):
        structure = Structure(function)
        _kept[structure.key] = shortcut.without_tensors(structure.tensors)


def _inherited(function: Callable[..., Any], args: tuple[Any, ...]) -> Shortcut | None:
    with suppress(LookupError):
        structure = Structure(function)
        return _kept[structure.key].with_tensors(structure.tensors, args)
    return None
