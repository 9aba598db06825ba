"""`Stateful`: an object whose state a checkpoint stores.

A checkpoint stores each state under the name that the object was registered with. The loader
compares all of them, refuses or accepts, then loads; it treats every type alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import nn


class Stateful(Protocol):
    """An object with a state.

    A state consists of Python scalars, strings, tensors, NumPy arrays, TensorDicts, and dicts,
    lists and tuples of them. Saving refuses anything else, and names the object and the key.

    Optional members check a saved state before it is loaded: ``mismatches(saved)`` lists why it
    does not fit, a line each, and ``fitting(saved)`` returns the part to load with
    ``strict=False``. ``has_parameters`` marks
    the trained parameters, ``needs_parameters`` a state that is reset where these do not match.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return everything that must survive a resume."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Restore what `state_dict` returned, or raise."""


def has_state(thing: Any) -> bool:
    """Return whether ``thing`` has both methods, neither abstract."""
    for name in ("state_dict", "load_state_dict"):
        method = getattr(thing, name, None)
        if not callable(method) or getattr(method, "__isabstractmethod__", False):
            return False
    return True


def mismatches(thing: Any, saved: Any) -> list[str]:
    """List why ``saved`` does not fit; see `Stateful`."""
    compare = getattr(thing, "mismatches", None)
    return list(compare(saved)) if callable(compare) else []


def fitting(thing: Any, saved: Any) -> Mapping[str, Any] | None:
    """Return the part of ``saved`` that can be loaded; see `Stateful`."""
    select = getattr(thing, "fitting", None)
    return select(saved) if callable(select) else None


def differing(here: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    """List which values here are others in the state, or missing there."""
    return [
        f"{name} is {value} here and {saved.get(name)} in the state"
        for name, value in here.items()
        if saved.get(name) != value
    ]


class StatefulModule:
    """A torch module as a `Stateful`, which compares parameters and buffers by name and shape."""

    has_parameters = True

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def state_dict(self) -> dict[str, Any]:
        """Return the module's state."""
        return self._module.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state into the module."""
        self._module.load_state_dict(state_dict)

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List parameters and buffers that are missing on either side or differ in shape."""
        live = self._module.state_dict()
        lines = [f"{key} is not in the state" for key in live if key not in saved]
        lines += [f"{key} is only in the state" for key in saved if key not in live]
        for key, value in live.items():
            shape, other = getattr(value, "shape", None), getattr(saved.get(key), "shape", None)
            if shape is not None and other is not None and shape != other:
                lines.append(f"{key} is {list(shape)} here and {list(other)} in the state")
        return lines

    def fitting(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Return the module's state, with the entries of ``saved`` of the same name and shape."""
        own = self._module.state_dict()
        same = {
            key: value
            for key, value in saved.items()
            if key in own and getattr(value, "shape", None) == getattr(own[key], "shape", None)
        }
        return {**own, **same}
