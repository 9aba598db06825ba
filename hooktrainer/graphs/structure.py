"""`Structure`: what a trace of a function depends on, but for the numbers in tensors."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import partial
from operator import getitem
from typing import Any

import numpy as np
import torch
from tensordict.nn.probabilistic import interaction_type
from torch import nn
from torch.nn.modules import module as _module

from .shortcut import kind_of

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
