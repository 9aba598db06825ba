"""Checks of dtypes, shapes and generator states."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .text import MalformedError, shown

_PLAIN = re.compile(r"[<>|=]?([?bB]|[biufcmMSUV]\d{1,9}(\[\w{1,8}\])?)", re.ASCII)


def plain_dtype(text: object) -> np.dtype[Any]:
    """Return the dtype of numbers, texts or bytes with this name."""
    if not isinstance(text, str) or not _PLAIN.fullmatch(text):
        raise MalformedError(f"{shown(text)} is no dtype of plain data")
    try:
        return np.dtype(text)
    except (TypeError, ValueError):
        raise MalformedError(f"{text!r} is no dtype of plain data") from None


def check_bit_generator(state: Any) -> dict[str, Any]:
    """Return the state of a NumPy bit generator if it is valid.

    NumPy does not check the positions in it, and would read memory beyond.
    """
    kind = state.get("bit_generator") if isinstance(state, dict) else None
    if kind not in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"):
        raise MalformedError(f"{shown(kind)} is no bit generator of NumPy")
    inner = state.get("state")
    place, length = {"MT19937": ("pos", 624), "Philox": ("buffer_pos", 4)}.get(kind, ("", 0))
    where = inner if kind == "MT19937" else state
    if not isinstance(inner, dict) or not isinstance(where, dict):
        raise MalformedError(f"the state of a {kind} has no 'state'")
    if place and (type(where.get(place)) is not int or not 0 <= where[place] <= length):
        raise MalformedError(f"the state of a {kind} has {place} {shown(where.get(place))}")
    return dict(state)


def check_shape(shape: object, itemsize: int = 1) -> None:
    """Refuse a shape with an invalid size, or a total of 2**62 bytes or more."""
    if not isinstance(shape, (list, tuple)) or len(shape) > 64:
        raise MalformedError(f"{shown(shape)} is no shape")
    nbytes = itemsize
    for size in shape:
        if type(size) is not int or size < 0:
            raise MalformedError(f"{shown(shape)} is no shape")
        nbytes *= max(size, 1)
    if nbytes >= 1 << 62:
        raise MalformedError(f"no array has the shape {shown(shape)}")
