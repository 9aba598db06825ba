"""Checks of plain data in saved policies: names, shapes and types as they may be."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

Path = tuple[str | int, ...]

_KINDS = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64)}
DTYPES = frozenset({"bool", *(f"{kind}{n}" for kind, bits in _KINDS.items() for n in bits)})
"""The types of observations and actions."""

_MOST_DIMS = 16


def decode(cls: type[Any], data: Mapping[str, Any]) -> Any:
    """A dataclass from its fields as plain data."""
    values = {name: data[name] for name in (field.name for field in dataclasses.fields(cls))}
    for name in ("shape", "sizes"):
        if name in values:
            values[name] = sizes_of(values[name])
    if "path" in values:
        values["path"] = path_of(values["path"])
    if not isinstance(values.get("key", ""), str):
        raise ValueError(f"{values['key']!r:.80} is no name")
    return cls(**values)


def sizes_of(values: Any) -> tuple[int, ...]:
    """A list of sizes, checked."""
    if not isinstance(values, (list, tuple)) or len(values) > 1 << 20:
        raise ValueError(f"{values!r:.80} is not a list")
    if not all(type(value) is int and 0 <= value < 1 << 40 for value in values):
        raise ValueError(f"{values!r:.80} is not a list of sizes")
    return tuple(values)


def path_of(values: Any) -> Path:
    """A list of keys and places, checked."""
    if not isinstance(values, (list, tuple)) or len(values) > 99:
        raise ValueError(f"{values!r:.80} is not a list")
    if not all(type(v) is str or (type(v) is int and 0 <= v < 1 << 20) for v in values):
        raise ValueError(f"{values!r:.80} is not a list of keys")
    return tuple(values)


def check_start(start: Any, shape: tuple[int, ...]) -> None:
    """What is added must not make an array larger."""
    if len(shape) > _MOST_DIMS:
        raise ValueError(f"{len(shape)} dimensions")
    if start is None:
        return
    array = np.asarray(start)
    if array.dtype.kind not in "biuf" or np.broadcast_shapes(array.shape, shape) != shape:
        raise ValueError(f"{start!r:.80} does not fit the shape {list(shape)}")
