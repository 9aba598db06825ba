"""Readers of TensorDict directories, archives and snapshots."""

from __future__ import annotations

import base64
import os
import struct
import zipfile
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import torch

from ..base.untrusted import (
    MAX_STRUCTURE,
    MalformedError,
    check_name,
    check_room,
    open_file,
    parse_json,
    places_in_file,
    shown,
)
from ..base.untrusted.array_file import check_shape
from ..base.untrusted.read_torch import DTYPES, read_pickle, read_torch


def read_tensordict(folder: Folder, place: str) -> dict[str, Any]:
    """Read a TensorDict: tensors, values, and dicts for nested ones.

    Raises:
        MalformedError: If it is not a TensorDict, a file has the wrong size, or a value is more
            than plain data and tensors.
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
    """Read the numbers of a file, ``[count]``."""
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


_MANIFEST = "manifest.json"
_FORMAT, _VERSION = "torchrl.checkpoint", 1
_DENSEST = 1032  # bytes that one byte of deflate can stand for


class Folder(Protocol):
    """Files by name, with ``/`` as the separator."""

    def __contains__(self, name: str) -> bool: ...

    def names(self, place: str = "") -> set[str]:
        """Return the first part of every name below ``place``."""

    def read(self, name: str, size: int | None = None) -> bytes:
        """Return the content of a file."""

    def close(self) -> None:
        """Close open files."""


class Directory:
    """The files below a directory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __contains__(self, name: str) -> bool:
        return (self._path / check_name(name)).is_file()

    def names(self, place: str = "") -> set[str]:
        """Return the names at ``place``."""
        directory = self._path / check_name(place) if place else self._path
        return set(os.listdir(directory)) if directory.is_dir() else set()

    def read(self, name: str, size: int | None = None) -> bytes:
        """Return the content of a file; see `Folder`."""
        if name not in self:
            raise MalformedError(f"it has no {name}")
        with open_file(self._path / name, self._path) as file:
            found = os.fstat(file.fileno()).st_size
            _check_size(name, found, size)
            return _whole(name, file.read(found), found)

    def close(self) -> None:
        """There is nothing to close."""


class Archive:
    """The files in a zip archive."""

    def __init__(self, path: Path) -> None:
        self._file = open_file(path)
        try:
            with places_in_file():
                self._zip = zipfile.ZipFile(self._file)
            entries = self._zip.infolist()
            _check_entries(entries, os.fstat(self._file.fileno()).st_size)
            self._entries = {entry.filename: entry for entry in entries}
        except BaseException:
            self._file.close()
            raise

    def __contains__(self, name: str) -> bool:
        return check_name(name) in self._entries

    def names(self, place: str = "") -> set[str]:
        """Return the names at ``place``."""
        start = f"{check_name(place)}/" if place else ""
        inside = (name[len(start) :] for name in self._entries if name.startswith(start))
        return {name.partition("/")[0] for name in inside}

    def read(self, name: str, size: int | None = None) -> bytes:
        """Return the content of a file; see `Folder`."""
        if name not in self:
            raise MalformedError(f"it has no {name}")
        entry = self._entries[name]
        _check_size(name, entry.file_size, size)
        with places_in_file(), self._zip.open(entry) as file:
            return _whole(name, file.read(entry.file_size), entry.file_size)

    def close(self) -> None:
        """Close the archive."""
        self._file.close()


def _check_size(name: str, found: int, size: int | None) -> None:
    """Compare a file's size with the required one and with free memory."""
    if size is None and found > MAX_STRUCTURE:
        raise MalformedError(f"{name} has {found:,} bytes, more than {MAX_STRUCTURE:,}")
    if size is not None and found != size:
        raise MalformedError(f"{name} has {found:,} bytes in place of {size:,}")
    check_room(found, name)


def _whole(name: str, data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise MalformedError(f"only {len(data):,} of the {size:,} bytes of {name} can be read")
    return data


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    """Refuse an archive with overlapping or impossibly compressed files."""
    if len({entry.filename for entry in entries}) != len(entries):
        raise MalformedError("it has two files of one name")
    if sum(entry.compress_size for entry in entries) > size:
        raise MalformedError("its files overlap")
    for entry in entries:
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise MalformedError(f"{shown(entry.filename)} is packed as TorchRL never does")
        if entry.file_size > _DENSEST * entry.compress_size:
            raise MalformedError(f"{shown(entry.filename)} is to be larger than it can be")


def manifest_of(folder: Folder) -> dict[str, Any] | None:
    """Return the manifest of TorchRL's `Checkpoint`, or ``None``."""
    if _MANIFEST not in folder:
        return None
    manifest = parse_json(folder.read(_MANIFEST))
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        return None
    if manifest.get("format_version") != _VERSION:
        version = shown(manifest.get("format_version"))
        raise MalformedError(f"it is of version {version} of TorchRL's format, not {_VERSION}")
    return manifest


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
    """Return whether the files are a snapshot of TorchRL's trainer."""
    return METADATA in folder and f"{_RANK}state" in _entries(folder)


def read_snapshot(folder: Folder) -> dict[str, Any]:
    """Return the content of a snapshot by component name.

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
    """Rebuilds the tree of a snapshot from its metadata entries."""

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
        """Return the value at a path."""
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
    """Return the description of each tensor of an entry."""
    if entry["type"] == "ChunkedTensor":
        return [chunk["tensor"] for chunk in entry["chunks"]]
    return [entry] if entry["type"] == "Tensor" else []


def _dtype(tensor: Mapping[str, Any]) -> torch.dtype:
    dtype = DTYPES.get(str(tensor["dtype"]).removeprefix("torch."))
    if dtype is None or tensor["serializer"] != "buffer_protocol":
        raise MalformedError(f"it holds a tensor of an unknown kind: {shown(tensor['dtype'])}")
    return dtype


def _span(tensor: Mapping[str, Any]) -> tuple[int, int]:
    """Return the byte range of a tensor in its file."""
    itemsize = _dtype(tensor).itemsize
    check_shape(tensor["shape"], itemsize)
    size = prod(tensor["shape"]) * itemsize
    start, stop = tensor["byte_range"] or (0, size)
    if type(start) is not int or start < 0 or stop != start + size:
        raise MalformedError(f"a tensor of {size} bytes is to lie at {start} to {stop}")
    return start, stop
