"""What torchsnapshot wrote for TorchRL's trainer: a tree in JSON, and files of tensors' bytes.

torchsnapshot itself believes what the metadata say: files anywhere, sizes, pickles.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from math import prod
from typing import Any
from urllib.parse import unquote

import torch

from ..base.untrusted import MalformedError, check_room, parse_json, shown
from ..base.untrusted.array_file import check_shape
from ..base.untrusted.read_torch import DTYPES, read_torch
from .memmap import Folder

METADATA = ".snapshot_metadata"
_RANK = "0/"  # TorchRL's trainer is the only one
_PRIMITIVES: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "str": str,
    "bool": {"True": True, "False": False}.__getitem__,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "float": lambda text: struct.unpack("<d", base64.b64decode(text, validate=True))[0],
}


def is_of_trainer(folder: Folder) -> bool:
    """Whether the files are a snapshot of TorchRL's trainer."""
    return METADATA in folder and f"{_RANK}state" in _entries(folder)


def read_snapshot(folder: Folder) -> dict[str, Any]:
    """Return what is in a snapshot, by the names that the trainer gave.

    Raises:
        MalformedError: If it is damaged, or holds more than plain data and tensors.
    """
    entries = _entries(folder)
    reader = _Reader(folder, entries)
    paths = [path for path in entries if path.count("/") == 1]
    return {unquote(path.removeprefix(_RANK)): reader.node(path) for path in paths}


def _entries(folder: Folder) -> dict[str, Any]:
    metadata = parse_json(folder.read(METADATA))
    if metadata["world_size"] != 1:
        raise MalformedError(f"it is of {shown(metadata['world_size'])} processes")
    return dict(metadata["manifest"])


def _encoded(key: object) -> str:
    return str(key).replace("%", "%25").replace("/", "%2F")


class _Reader:
    """Rebuilds the tree.

    Args:
        folder: The files.
        entries: What the metadata say of each node, by its path.
    """

    def __init__(self, folder: Folder, entries: Mapping[str, Any]) -> None:
        self._folder = folder
        self._entries = entries
        self._files: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        tensors = [tensor for entry in entries.values() for tensor in _tensors(entry)]
        for tensor in tensors:
            stop = _span(tensor)[1]
            self._sizes[tensor["location"]] = max(stop, self._sizes.get(tensor["location"], 0))
        check_room(sum(stop - start for start, stop in map(_span, tensors)), "its tensors")

    def node(self, path: str) -> Any:
        """The value at a path, and all below it."""
        entry = self._entries[path]
        kind = entry["type"]
        if kind in ("dict", "OrderedDict"):
            keys = entry["keys"]
            if len(set(map(str, keys))) != len(keys):
                raise MalformedError(f"{shown(path)} has a key twice")
            return {key: self.node(f"{path}/{_encoded(key)}") for key in keys}
        if kind == "list":
            items: list[Any] = []
            while (item := f"{path}/{len(items)}") in self._entries:
                items.append(self.node(item))
            return items
        if kind == "Tensor":
            return self._tensor(entry)
        if kind == "ChunkedTensor":  # along the first dimension
            whole = torch.cat([self._tensor(chunk["tensor"]) for chunk in entry["chunks"]])
            return whole.reshape(entry["shape"])
        if kind == "object":
            return read_torch(self._folder.read(entry["location"]))
        if kind in _PRIMITIVES:
            return _PRIMITIVES[kind](entry["serialized_value"])
        raise MalformedError(f"it holds a {shown(kind)}, which is unknown")

    def _tensor(self, entry: Mapping[str, Any]) -> torch.Tensor:
        location, (start, stop) = entry["location"], _span(entry)
        if location not in self._files:
            self._files[location] = self._folder.read(location, self._sizes[location])
        dtype, data = _dtype(entry), bytearray(self._files[location][start:stop])
        if not data:
            return torch.empty(entry["shape"], dtype=dtype)
        if dtype is torch.bool:  # any other byte than 0 and 1 is none
            return (torch.frombuffer(data, dtype=torch.uint8) != 0).reshape(entry["shape"])
        return torch.frombuffer(data, dtype=dtype).reshape(entry["shape"])


def _tensors(entry: Mapping[str, Any]) -> list[Any]:
    """What an entry says of each tensor whose bytes are in a file."""
    if entry["type"] == "ChunkedTensor":
        return [chunk["tensor"] for chunk in entry["chunks"]]
    return [entry] if entry["type"] == "Tensor" else []


def _dtype(tensor: Mapping[str, Any]) -> torch.dtype:
    dtype = DTYPES.get(str(tensor["dtype"]).removeprefix("torch."))
    if dtype is None or tensor["serializer"] != "buffer_protocol":
        raise MalformedError(f"it holds a tensor of an unknown kind: {shown(tensor['dtype'])}")
    return dtype


def _span(tensor: Mapping[str, Any]) -> tuple[int, int]:
    """Where the bytes of a tensor lie in its file."""
    itemsize = _dtype(tensor).itemsize
    check_shape(tensor["shape"], itemsize)
    size = prod(tensor["shape"]) * itemsize
    start, stop = tensor["byte_range"] or (0, size)
    if type(start) is not int or start < 0 or stop != start + size:
        raise MalformedError(f"a tensor of {size} bytes is to lie at {start} to {stop}")
    return start, stop
