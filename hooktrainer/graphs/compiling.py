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

from .inductor import keep_between_runs, with_inductor
from .shortcut import Compiled, Shortcut
from .structure import Structure

BACKEND: str | None = "inductor"
"""The backend of ``torch.compile``; ``None`` computes what would be compiled, to look into it."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


class CannotCompileError(RuntimeError):
    """Why something is no graph, in a line."""


class Graph(Generic[T]):
    """A function as one compiled graph, without gradient.

    It is compiled at its first call, which says so, and for the shapes of this call alone. A call
    looks whether what it was compiled for is still so, such as the attributes of modules; where
    nothing but the numbers can have changed since the last one, `again` leaves that out.

    Args:
        function: What is compiled. It draws the random numbers that it would draw eagerly.
        what: What it is, for messages.
        say: Called with a line before it is compiled, which takes its time, and one after.
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
            CannotCompileError: If it is no graph, or has to be compiled anew again and again.
        """
        if self._unchanged and self._shortcut is not None and self._shortcut.takes(args):
            out: T = self._shortcut(args)
            return out
        return self._look_anew(args)

    def again(self, *args: Any) -> T:
        """Call the function, with tensors like those of the last call."""
        return self(*args) if self._shortcut is None else self._shortcut(args)

    def _look_anew(self, args: tuple[Any, ...]) -> T:
        """Call the function by way of ``torch.compile``, and find out how to do without that."""
        if not self._is_compiled and _kept:
            self._shortcut = _inherited(self._function, args)
            if self._shortcut is not None:
                self._watch()
                return self._shortcut(args)
        with torch.no_grad():
            out = self._compiled(args)
        if self._seen and (self._shortcut is None or not self._shortcut.calls(*self._seen[:2])):
            self._shortcut = Shortcut.found(*self._seen, args, out)
            if self._shortcut is not None and _is_keeping:
                _keep(self._function, self._shortcut)
        self._seen = ()
        if self._shortcut is not None:
            self._watch()
        return out

    def _watch(self) -> None:
        """Take up what the function depends on, if that can be told."""
        if self._root is not None:
            try:
                self._unchanged = Structure(self._root)
            except LookupError:
                self._root = None

    def _compiled(self, args: tuple[Any, ...]) -> T:
        if self._is_compiled:
            try:
                out = self._call(*args)
            except FailOnRecompileLimitHit as error:
                raise CannotCompileError(
                    f"{self._what} had to be compiled anew again and again, since something that "
                    "is no tensor changes: make it a buffer of the module"
                ) from error
        else:
            out = self._first(args)
        return out

    def _first(self, args: tuple[Any, ...]) -> T:
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
        """What ``torch.compile`` calls with a graph."""
        assert BACKEND is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch, by torch
            compiled: Compiled
            if BACKEND == "inductor":
                compiled = with_inductor(module, inputs)
            else:
                compiled = lookup_backend(BACKEND)(module, inputs)

        def call(*args: Any) -> Any:
            out = compiled(*args)
            self._seen = (compiled, args, out)
            return out

        return call


class GraphOr(Generic[T]):
    """A function as one compiled graph, or as it is where it can be none, which is said once.

    Args:
        function: As for `Graph`.
        what: What it is, for messages.
        say: As for `Graph`.
    """

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
    """Say nothing."""


def _apart(function: Callable[..., T]) -> Callable[..., T]:
    """The same with code of its own: what is compiled is kept, and counted, by the code."""

    def call(*args: Any) -> T:
        return function(*args)

    own = call.__code__.replace(co_name=call.__name__)
    return types.FunctionType(own, globals(), closure=call.__closure__)


def _reason(error: Exception) -> str:
    """What a compiler's error says in its first lines, and where in the user's code."""
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
