"""`Unchanged`: whether modules compute what they did, but for the numbers in their tensors."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from operator import getitem
from typing import Any

import torch
from tensordict.nn.probabilistic import interaction_type
from torch import nn
from torch.nn.modules import module as _module

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
