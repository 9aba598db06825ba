"""`Structure`: what a trace of a function depends on, but for the numbers in tensors."""

from __future__ import annotations

import types
from collections.abc import Iterable
from enum import Enum
from functools import partial
from operator import getitem
from typing import Any

import numpy as np
import torch
from tensordict.nn.probabilistic import interaction_type
from torch import nn
from torch.nn.modules import module as _module

_PLAIN = (
    *(bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType, Enum, type),
    *(torch.dtype, torch.device, torch.Size, torch.layout, np.dtype, np.generic),
    types.BuiltinFunctionType,
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

    This is all code, attributes, closures and containers that can be reached from it; of an object
    without attributes, such as an iterator, only which one it is. Global variables are not looked
    at, nor attributes that an object's ``not_in_graphs`` names. Its truth value is whether all of
    it is unchanged. Two structures of one process, or of one and its fork, with the same `key` have
    the same trace.

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
        self._modes = _modes()
        self._look(root)
        self._seen.clear()
        self._owners = [owner for owner, _ in self._places]
        self._names = [name for _, name in self._places]
        self._values = [*map(getitem, self._owners, self._names)]
        self._numbers = [*map(len, self._objects)]
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
        elif isinstance(value, types.FunctionType):
            self._parts.append(value.__code__)
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            self._look_at_all([*cells, value.__defaults__, value.__kwdefaults__])
        elif isinstance(value, types.MethodType):
            self._look_at_all((value.__func__, value.__self__))
        elif isinstance(value, partial):
            self._look_at_all((value.func, value.args, value.keywords))
        elif isinstance(value, (dict, list, set, tuple, frozenset)):
            self._look_at_container(value)
        elif hasattr(value, "__dict__") and kind is not types.ModuleType:
            self._look_at_attributes(value)
        else:
            self._parts += (kind, id(value))

    def _look_at_container(self, value: Any) -> None:
        self._parts += (type(value), len(value))
        if not isinstance(value, (tuple, frozenset)):
            self._containers.append(value)
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


def _modes() -> tuple[Any, ...]:
    """Return what of torch's and tensordict's global state a trace depends on."""
    return (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.is_autocast_enabled("cpu"),
        interaction_type(),
    )


def kind_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what a graph is compiled for of a tensor."""
    layout = tensor.stride() if tensor.layout is torch.strided else None
    return type(tensor), tensor.dtype, tensor.shape, layout, tensor.device, tensor.requires_grad
