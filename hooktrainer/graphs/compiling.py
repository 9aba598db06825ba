"""`Graph`: a function as one compiled graph, and how it is called in no time."""

from __future__ import annotations

import logging
import time
import types
import warnings
from collections.abc import Callable, Iterable, Sequence
from operator import getitem
from typing import Any, Generic, TypeVar

import torch
from tensordict.nn.probabilistic import interaction_type
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.exc import FailOnRecompileLimitHit
from torch.nn.modules import module as _module

from .inductor import keep_between_runs, with_inductor
from .shortcut import Compiled, Shortcut

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
        module: If given, the function depends on nothing else than it and the arguments; then a
            call looks as quickly as `Unchanged` can, if that can answer for the module.
    """

    def __init__(
        self,
        function: Callable[..., T],
        what: str,
        say: Callable[[str], None],
        module: nn.Module | None = None,
    ) -> None:
        self._what, self._say = what, say
        self._module = module
        self._unchanged: Unchanged | None = None
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
        with torch.no_grad():
            out = self._compiled(args)
        if self._seen and (self._shortcut is None or not self._shortcut.calls(*self._seen[:2])):
            self._shortcut = Shortcut.found(*self._seen, args, out)
        self._seen = ()
        if self._module is not None and self._shortcut is not None:
            try:
                self._unchanged = Unchanged(self._module)
            except LookupError:
                self._module = None
        return out

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


# -- `Unchanged`: whether modules compute what they did, but for the numbers in their tensors.

# Whose code reads nothing that can change but attributes, and what is looked at here besides.
_KNOWN = ("hooktrainer", "torch", "tensordict", "builtins", "abc", "types", "typing")
_PLAIN = (bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType)
_PLAIN_OF_TORCH = (torch.dtype, torch.device, torch.Size)
_CODE = (type, types.FunctionType, types.BuiltinFunctionType)
# Of every module; nobody puts another in the place of one.
_REGISTRIES = frozenset(vars(nn.Module())) - {"training"}
_OF_ALL_MODULES = (
    _module._global_forward_hooks,
    _module._global_forward_pre_hooks,
    _module._global_backward_hooks,
    _module._global_backward_pre_hooks,
)


class Unchanged:
    """Tells whether modules are as they were, but for the numbers in their tensors.

    It compares the attributes of the modules, of their parts, and of plain objects and containers
    among these: coefficients, ``training``, keys, which parameters and buffers there are, forward
    hooks. It does not look at code, as ``torch.compile`` does at every call, and takes a fifth of
    that time. So it answers for torch's code and this package's; that of others may read anything,
    such as a global variable. Attributes that an object's ``not_in_graphs`` names are left out.

    Args:
        module: The module; with those that it consists of.

    Raises:
        LookupError: If there is something among the attributes that it cannot answer for.
    """

    def __init__(self, module: nn.Module) -> None:
        self._seen: dict[int, Any] = {}
        self._objects: list[dict[str, Any]] = []  # the attributes of each
        self._places: list[tuple[dict[str, Any], str]] = []  # where an attribute is
        self._filled: list[Any] = []  # containers
        self._empty: list[Any] = list(_OF_ALL_MODULES)
        self._look(module)
        self._seen.clear()
        self._owners, self._names = zip(*self._places, strict=True)
        self._values = [owner[name] for owner, name in self._places]
        self._numbers = [*map(len, self._objects)]
        self._copies = [_copy(container) for container in self._filled]
        self._exploration = interaction_type()
        self._modes = torch._C._dynamo.guards.GlobalStateGuard()  # which torch.compile asks

    def __bool__(self) -> bool:
        """Whether nothing has changed since this was made.

        Lists are compared, which takes what is identical for equal: no Python for each attribute.
        """
        if any(self._empty) or not self._modes.check():
            return False
        if interaction_type() is not self._exploration:
            return False
        try:
            return (
                [*map(len, self._objects)] == self._numbers
                and [*map(getitem, self._owners, self._names)] == self._values
                and self._filled == self._copies
            )
        except (KeyError, RuntimeError, ValueError):  # one is gone, or an array in its place
            return False

    def _look(self, value: Any) -> None:
        """Take up all that a value consists of."""
        kind = type(value)
        if isinstance(value, (*_PLAIN, *_PLAIN_OF_TORCH, torch.Tensor)) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, _CODE):
            _check_known(value)
        elif kind in (tuple, frozenset):
            self._look_at_all(value)
        elif kind in (list, set):
            self._add(value, value)
        elif isinstance(value, dict):
            self._add(value, value.values())
        elif _is_plain_object(value):
            _check_known(kind)
            self._look_at_attributes(value)
        else:
            raise LookupError(f"a {kind.__name__}")

    def _look_at_attributes(self, value: Any) -> None:
        """Take up an object; of a module's registries what is in them alone."""
        attributes = vars(value)
        self._objects.append(attributes)
        registries = _REGISTRIES if isinstance(value, nn.Module) else ()
        unread = getattr(value, "not_in_graphs", ())
        for name, part in attributes.items():
            if name not in registries and name not in unread:
                self._places.append((attributes, name))
            if name not in unread:
                self._look(part)

    def _add(self, container: Any, values: Iterable[Any]) -> None:
        (self._filled if container else self._empty).append(container)
        self._look_at_all(values)

    def _look_at_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self._look(value)


def _copy(container: Any) -> Any:
    """A copy that is quick to compare with: of an ordered dict the order is left out."""
    return dict(container) if isinstance(container, dict) else container.copy()


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
    """Refuse a class or a function that is somebody else's."""
    parts: Sequence[Any] = code.__mro__ if isinstance(code, type) else (code,)
    for part in parts:
        package = str(part.__module__).partition(".")[0]
        if package not in _KNOWN and type(code) is not types.BuiltinFunctionType:
            raise LookupError(f"{part!r}")
