"""NumPy's ``.npy`` files, and checks of dtypes, shapes and generator states."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .files import check_room, open_file
from .text import MalformedError, refusing, shown

_PLAIN = re.compile(r"[<>|=]?([?bB]|[biufcmMSUV]\d{1,9}(\[\w{1,8}\])?)", re.ASCII)
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_array(path: Path, root: Path | None = None) -> npt.NDArray[Any]:
    """Read an array of `np.save`, after comparing its header with the file's size."""
    with open_file(path, root) as file, refusing(path.name), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers of Python 2
        version = np.lib.format.read_magic(file)
        if version not in _READERS:
            raise MalformedError(f"its version {version} is not known")
        shape, fortran, dtype = _READERS[version](file)
        if dtype.fields is not None:
            raise MalformedError("it holds records of several fields")
        dtype = plain_dtype(dtype.str)
        check_shape(shape, dtype.itemsize)
        count = int(np.prod([1, *shape], dtype=object))
        left = os.fstat(file.fileno()).st_size - file.tell()
        if count * dtype.itemsize != left:
            raise MalformedError(
                f"it has {left} bytes where {dtype}{list(shape)} takes {count * dtype.itemsize}"
            )
        check_room(left, "its numbers")
        flat = np.empty(count, dtype)
        read = file.readinto(flat.view(np.uint8).data) if left else 0
        if read != left:
            raise MalformedError(f"only {read} of {left} bytes can be read")
        return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


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
