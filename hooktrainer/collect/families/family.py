"""`Family`: environments that everybody wraps in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymnasium.envs.registration import EnvSpec, WrapperSpec

Wrappers = tuple[WrapperSpec, ...]


@dataclass(frozen=True)
class Family:
    """Environments that everybody wraps in the same way.

    Attributes:
        name: What it is called.
        ids: A regular expression that the ids begin with.
        wrappers: For an environment with its keyword arguments, and whether it is trained in or
            played, the wrappers, the innermost first.
        says: What they do, in words; of an environment with its keyword arguments.
        kwargs: Keyword arguments of the environment that go with the wrappers.
    """

    name: str
    ids: str
    wrappers: Callable[[EnvSpec, bool], Wrappers]
    says: Callable[[EnvSpec], str]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def wrapper(entry_point: str, **kwargs: Any) -> WrapperSpec:
    """A wrapper by its place, ``module:class``, and its arguments."""
    return WrapperSpec(entry_point.rpartition(":")[2], entry_point, kwargs)


def gymnasiums(name: str, module: str, **kwargs: Any) -> WrapperSpec:
    """One of Gymnasium's wrappers."""
    return wrapper(f"gymnasium.wrappers.{module}:{name}", **kwargs)
