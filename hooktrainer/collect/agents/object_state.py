"""The state of a simulator whose objects hold tensors: read, put back, and merged row by row.

VMAS keeps its state in the attributes of many objects: agents, landmarks, the world, the scenario.
All that are reachable from one of them are found once, when the simulator is made, in an order that
depends on how it was made alone. The attributes of the objects, in that order, are its state.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from ...errors import StateMismatchError

State = list[dict[str, Any]]
"""For each object its attributes. An object is ``{"object": its index}``, a dict ``{"items": its
items}``, and what never changes, such as a function, ``{"constant": True}``."""

_PLAIN = (type(None), bool, int, float, str, torch.Tensor, np.ndarray, np.generic)
_CONSTANTS = (
    type,
    enum.Enum,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    spaces.Space,
    torch.device,
    torch.dtype,
    frozenset,
)
_CONSTANT_MODULES = ("gym", "gymnasium", "pyglet", "matplotlib")


class ObjectState:
    """The state of everything that is reachable from an object.

    Args:
        root: The object.
    """

    def __init__(self, root: Any) -> None:
        self._objects: list[Any] = []
        self._index: dict[int, int] = {}
        self._find(root)

    def read(self) -> State:
        """The attributes of every object; tensors are not copied.

        Raises:
            StateMismatchError: If there is an object that was not there in the beginning.
        """
        return [
            {name: self._code(value) for name, value in vars(one).items()} for one in self._objects
        ]

    def write(self, state: State) -> None:
        """Give every object the attributes that `read` returned; tensors are not copied.

        Raises:
            StateMismatchError: If there were other objects.
        """
        if len(state) != len(self._objects):
            raise StateMismatchError(
                f"The saved simulator consists of {len(state)} objects, this one of "
                f"{len(self._objects)}: it was made with other arguments."
            )
        for one, saved in zip(self._objects, state, strict=True):
            attributes = vars(one)
            for name in attributes.keys() - saved.keys():
                del attributes[name]
            for name, code in saved.items():
                attributes[name] = self._decode(code, attributes.get(name))

    def keep_rows(self, before: State, rows: torch.Tensor) -> bool:
        """Put some rows of all tensors back to what they were.

        Args:
            before: What `read` returned before, copied.
            rows: Which rows, bool ``[rows]``.

        Returns:
            Whether nothing but rows of tensors has changed; if not, nothing is put back.
        """
        found: list[tuple[torch.Tensor, torch.Tensor]] = []
        if not self._changed_rows(before, rows, found):
            return False
        if any(0 in tensor.stride() for _, tensor in found):  # expanded: its rows are one
            self.write(copied(self.read()))
            self._changed_rows(before, rows, found := [])
        for old_tensor, tensor in found:
            kept = rows.view(-1, *[1] * (tensor.ndim - 1))
            tensor.copy_(torch.where(kept, old_tensor, tensor))
        return True

    def _changed_rows(
        self, before: State, rows: torch.Tensor, found: list[tuple[torch.Tensor, torch.Tensor]]
    ) -> bool:
        """Collect the tensors that have rows, then and now; whether nothing else has changed."""
        # What is new has no rows to keep; what is gone has.
        return all(
            name in new and _pairs(code, new[name], rows, found)
            for old, new in zip(before, self.read(), strict=True)
            for name, code in old.items()
        )

    def _find(self, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            for item in value:
                self._find(item)
        elif isinstance(value, dict):
            for key, item in value.items():
                self._find(key)
                self._find(item)
        elif _is_object(value) and id(value) not in self._index:
            self._index[id(value)] = len(self._objects)
            self._objects.append(value)
            for item in list(vars(value).values()):
                self._find(item)

    def _code(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._code, value))
        if isinstance(value, dict):
            return {"items": [[self._code(k), self._code(v)] for k, v in value.items()]}
        if not _is_object(value):
            return {"constant": True}
        if id(value) not in self._index:
            raise StateMismatchError(
                f"it makes a new {type(value).__name__} in the course of an episode"
            )
        return {"object": self._index[id(value)]}

    def _decode(self, code: Any, there: Any) -> Any:
        """What a code means; ``there`` is what is in its place now."""
        if isinstance(code, (list, tuple)):
            old = list(there) if isinstance(there, (list, tuple)) else []
            old += [None] * (len(code) - len(old))
            return type(code)(self._decode(c, o) for c, o in zip(code, old, strict=False))
        if not isinstance(code, dict):
            return code
        if "object" in code:
            return self._objects[code["object"]]
        if "constant" in code:
            return there
        old_items = list(there.items()) if isinstance(there, dict) else []
        old_items += [(None, None)] * (len(code["items"]) - len(old_items))
        return {
            self._decode(key, old_key): self._decode(value, old_value)
            for (key, value), (old_key, old_value) in zip(code["items"], old_items, strict=False)
        }


def copied(tree: Any, copy: Callable[[torch.Tensor], torch.Tensor] = torch.clone) -> Any:
    """A copy of a state; a tensor that occurs twice in it does so in the copy."""
    seen: dict[int, torch.Tensor] = {}

    def go(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in seen:
                seen[id(value)] = copy(value)
            return seen[id(value)]
        if isinstance(value, np.ndarray):
            return value.copy()
        if isinstance(value, dict):
            return {key: go(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(go, value))
        return value

    return go(tree)


def _pairs(
    old: Any, new: Any, rows: torch.Tensor, found: list[tuple[torch.Tensor, torch.Tensor]]
) -> bool:
    """Whether two codes differ in rows of tensors at most; adds these tensors to ``found``."""
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        if old.shape != new.shape or old.dtype != new.dtype:
            return False
        if old.ndim and len(old) == len(rows):
            found.append((old, new))
            return True
        return torch.equal(old, new)
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(old) == len(new) and all(
            _pairs(a, b, rows, found) for a, b in zip(old, new, strict=True)
        )
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_pairs(old[k], new[k], rows, found) for k in old)
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        return np.array_equal(old, new)
    return type(old) is type(new) and not isinstance(old, torch.Tensor) and bool(old == new)


def _is_object(value: Any) -> bool:
    """Whether it is one of the simulator's own objects, whose attributes are state."""
    if isinstance(value, (*_PLAIN, *_CONSTANTS)) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.split(".")[0] not in _CONSTANT_MODULES
