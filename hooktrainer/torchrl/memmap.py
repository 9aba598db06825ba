"""A TensorDict that was written as a directory: ``meta.json``, and a file for each tensor."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from ..base.untrusted import MalformedError, parse_json
from ..base.untrusted.array_file import check_shape
from ..base.untrusted.pickle_file import read_pickle
from ..base.untrusted.torch_pickle import DTYPES
from .folder import Folder


def read_tensordict(folder: Folder, place: str) -> dict[str, Any]:
    """Return the entries of a TensorDict: tensors, values, and dicts of them for nested ones.

    Args:
        folder: The files.
        place: Where the TensorDict lies among them.

    Raises:
        MalformedError: If that is no TensorDict, a tensor's file has another size than it is to
            have, or a value is more than plain data and tensors.
    """
    meta = parse_json(folder.read(f"{place}/meta.json"), nan=True)
    entries: dict[str, Any] = {}
    for key, entry in meta.items():
        if isinstance(entry, dict) and "dtype" in entry:
            entries[key] = _read_tensor(folder, f"{place}/{key}.memmap", entry)
        elif isinstance(entry, dict) and "type" in entry:
            entries[key] = _read_nested(folder, f"{place}/{key}")
    return entries


def read_values(folder: Folder, name: str, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the numbers of a file, ``[count]``."""
    check_shape((count,), dtype.itemsize)
    data = folder.read(name, count * dtype.itemsize)
    if dtype is torch.bool:  # any other byte than 0 and 1 is none
        return torch.frombuffer(bytearray(data), dtype=torch.uint8) != 0
    return torch.frombuffer(bytearray(data), dtype=dtype)


def _read_tensor(folder: Folder, name: str, entry: dict[str, Any]) -> torch.Tensor:
    dtype = DTYPES.get(str(entry["dtype"]).removeprefix("torch."))
    shape = entry["shape"]
    if dtype is None or entry.get("is_nested") is not False:
        raise MalformedError(f"{name} is a tensor of an unknown kind")
    check_shape(shape, dtype.itemsize)
    if not prod(shape):
        return torch.empty(shape, dtype=dtype)
    return read_values(folder, name, prod(shape), dtype).reshape(shape)


def _read_nested(folder: Folder, place: str) -> Any:
    meta = parse_json(folder.read(f"{place}/meta.json"), nan=True)
    if meta.get("_is_non_tensor") is not True:
        if "TensorDict'>" not in str(meta.get("_type")) or "stack_dim" in meta:
            raise MalformedError(f"{place} is a {meta.get('_type')}")
        return read_tensordict(folder, place)
    if "data" in meta:
        return meta["data"]
    return read_pickle(folder.read(f"{place}/other.pickle"))["data"]
