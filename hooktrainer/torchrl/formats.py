"""Reads the formats in which TorchRL's trainer saves directories and archives.

===================================== ==========================================================
``CKPT_BACKEND=memmap``               a directory with one for each state dict, and ``state.json``
``CKPT_BACKEND=torchsnapshot``        a directory with a ``.snapshot_metadata``
``checkpoint=Checkpoint(...)``        a directory or a zip archive with a ``manifest.json``
===================================== ==========================================================
"""

from __future__ import annotations

import base64
import os
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import torch
from tensordict import TensorDict

from ..base.untrusted import (
    MAX_STRUCTURE,
    MalformedError,
    check_name,
    check_room,
    open_file,
    parse_json,
    places_in_file,
    refusing,
    shown,
)
from ..base.untrusted.array_file import check_shape, plain_dtype
from ..base.untrusted.read_torch import DTYPES, read_pickle, read_torch, set_attributes
from ..errors import CheckpointError

_DENSEST = 1032  # bytes that one byte of deflate can stand for
_RENAMED = {"trainer_state": "state"}
_MODULE = "trainer_module."


class Content(dict[str, Any]):
    """The state of each component in a checkpoint directory or archive."""


class NotRead(str):
    """The reason why a component was not read."""


def read(path: Path) -> Content | None:
    """Read a checkpoint directory or archive; return ``None`` for any other file.

    Raises:
        CheckpointError: If it is damaged, or another directory.
    """
    with refusing(path, CheckpointError), ExitStack() as stack:
        archive = None
        if not path.is_dir():
            file = stack.enter_context(open_file(path))
            if not zipfile.is_zipfile(file):
                return None
            with places_in_file():
                archive = zipfile.ZipFile(file)
        folder = Folder(path, archive)
        if "manifest.json" in folder:
            manifest = parse_json(folder.read("manifest.json"))
            if isinstance(manifest, dict) and manifest.get("format") == "torchrl.checkpoint":
                return _read_unified(folder, manifest)
        if "state.json" in folder and "loss_module/meta.json" in folder:
            names = [name for name in sorted(folder.names()) if f"{name}/meta.json" in folder]
            state = parse_json(folder.read("state.json"), nan=True)
            return Content({name: read_tensordict(folder, name) for name in names}, state=state)
        if ".snapshot_metadata" in folder:
            snapshot = parse_json(folder.read(".snapshot_metadata"))
            if "0/state" in snapshot["manifest"]:
                return _read_snapshot(folder, snapshot)
    if path.is_dir():
        raise CheckpointError(
            f"{path} is a directory, and none that TorchRL's trainer saved. A checkpoint of a run "
            "is loaded by --resume, or with CheckpointManager.load."
        )
    return None


class Folder:
    """The files below a directory or in a zip archive, by name, with ``/`` as the separator."""

    def __init__(self, path: Path, archive: zipfile.ZipFile | None = None) -> None:
        self._path, self._archive = path, archive
        entries = archive.infolist() if archive else []
        self._entries = {entry.filename: entry for entry in entries}
        if len(self._entries) != len(entries):
            raise MalformedError("it has two files of one name")
        for entry in entries:  # zipfile bounds what it unpacks of these only
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise MalformedError(f"{shown(entry.filename)} is packed as TorchRL never does")
        if sum(e.file_size for e in self._entries.values()) > _DENSEST * path.stat().st_size:
            raise MalformedError("its files are to be larger than they can be")

    def __contains__(self, name: str) -> bool:
        check_name(name)
        return name in self._entries if self._archive else (self._path / name).is_file()

    def names(self, place: str = "") -> set[str]:
        """Return the first part of every name below ``place``."""
        if self._archive is None:
            directory = self._path / check_name(place) if place else self._path
            return set(os.listdir(directory)) if directory.is_dir() else set()
        start = f"{check_name(place)}/" if place else ""
        inside = (name[len(start) :] for name in self._entries if name.startswith(start))
        return {name.partition("/")[0] for name in inside}

    def read(self, name: str, size: int | None = None, start: int | None = None) -> bytes:
        """Return the content of a file.

        Args:
            name: The file.
            size: The bytes that it is to have; ``None`` for any number that can be parsed.
            start: Where in the file they are; ``None`` if they are all of it.

        Raises:
            MalformedError: If it is not there, or has another size.
        """
        if name not in self:
            raise MalformedError(f"it has no {name}")
        with places_in_file():
            if self._archive:
                found = self._entries[name].file_size
                file: Any = self._archive.open(name)
            else:
                file = open_file(self._path / name, self._path)
                found = os.fstat(file.fileno()).st_size
        with places_in_file(), file:
            if size is None and found > MAX_STRUCTURE:
                raise MalformedError(f"{name} has {found:,} bytes, more than {MAX_STRUCTURE:,}")
            size = found if size is None else size
            if found != size if start is None else found < start + size:
                raise MalformedError(f"{name} has {found:,} bytes in place of {size:,}")
            check_room(size, name)
            file.seek(start or 0)
            data: bytes = file.read(size)
        if len(data) != size:
            raise MalformedError(f"only {len(data):,} of {size:,} bytes of {name} can be read")
        return data


# -- Tensors, and TensorDicts in memory-mapped files.


def read_tensordict(folder: Folder, place: str) -> dict[str, Any]:
    """Read a TensorDict: tensors, values, and dicts for nested ones.

    Raises:
        MalformedError: If it is not a TensorDict, a file has the wrong size, or a value is more
            than plain data and tensors.
    """
    entries: dict[str, Any] = {}
    for key, entry in parse_json(folder.read(f"{place}/meta.json"), nan=True).items():
        if isinstance(entry, dict) and "dtype" in entry:
            dtype = _dtype(entry["dtype"], entry.get("is_nested") is False)
            name = f"{place}/{key}.memmap"
            entries[key] = _read_tensor(folder, name, entry["shape"], dtype)
        elif isinstance(entry, dict) and "type" in entry:
            entries[key] = _read_nested(folder, f"{place}/{key}")
    return entries


def _read_nested(folder: Folder, place: str) -> Any:
    meta = parse_json(folder.read(f"{place}/meta.json"), nan=True)
    if meta.get("_is_non_tensor") is not True:
        if "TensorDict'>" not in str(meta.get("_type")) or "stack_dim" in meta:
            raise MalformedError(f"{place} is a {meta.get('_type')}")
        return read_tensordict(folder, place)
    if "data" in meta:
        return meta["data"]
    return read_pickle(folder.read(f"{place}/other.pickle"))["data"]


def _dtype(name: object, is_plain: bool) -> torch.dtype:
    dtype = DTYPES.get(str(name).removeprefix("torch."))
    if dtype is None or not is_plain:
        raise MalformedError(f"it holds a tensor of an unknown kind: {shown(name)}")
    return dtype


def _nbytes(shape: Any, dtype: torch.dtype) -> int:
    check_shape(shape, dtype.itemsize)
    return prod(shape) * dtype.itemsize


def _read_tensor(
    folder: Folder, name: str, shape: Any, dtype: torch.dtype, span: Any = None
) -> torch.Tensor:
    """Read a tensor from a file, or from the bytes ``span[0]`` to ``span[1]`` of it."""
    size = _nbytes(shape, dtype)
    start, stop = (None, size) if span is None else span
    if start is not None and (type(start) is not int or start < 0 or stop != start + size):
        raise MalformedError(f"a tensor of {size} bytes is to lie at {start} to {stop}")
    if not size:
        return torch.empty(shape, dtype=dtype)
    data = bytearray(folder.read(name, size, start))
    if dtype is torch.bool:  # any other byte than 0 and 1 is none
        return (torch.frombuffer(data, dtype=torch.uint8) != 0).reshape(shape)
    return torch.frombuffer(data, dtype=dtype).reshape(shape)


# -- The format of `torchrl.checkpoint.Checkpoint`.


def _read_unified(folder: Folder, manifest: Mapping[str, Any]) -> Content:
    if (version := manifest.get("format_version")) != 1:
        raise MalformedError(f"it is of version {shown(version)} of TorchRL's format, not 1")
    content = Content()
    places: set[str] = set()
    for name, record in manifest["components"].items():
        place = check_name(record["path"])
        if place in places:
            raise MalformedError(f"two components are at {place}")
        places.add(place)
        if name == "policy":  # its parameters are the loss module's as well
            continue
        adapter = record["adapter"]
        content[_RENAMED.get(name, name.removeprefix(_MODULE))] = (
            _ADAPTERS[adapter](folder, place)
            if adapter in _ADAPTERS
            else NotRead(f"it was written by {shown(adapter)}")
        )
    return content


def _read_state_dict(folder: Folder, place: str) -> Any:
    if f"{place}/state.pt" in folder:
        return read_torch(folder.read(f"{place}/state.pt"))
    if f"{place}/state/meta.json" not in folder:
        if not folder.names(place):
            raise MalformedError(f"it has no {place}")
        return NotRead("it is packed; save it with StateDictCheckpointAdapter('directory')")
    tensors = read_tensordict(folder, f"{place}/state")
    return _decode(parse_json(folder.read(f"{place}/state.json"), nan=True), tensors)


def _read_replay_buffer(folder: Folder, place: str) -> Any:
    """Read a replay buffer with one tensor storage."""
    if f"{place}/storage/storage_metadata.json" not in folder:
        return NotRead("it is no replay buffer with a storage of tensors")
    about = parse_json(folder.read(f"{place}/storage/storage_metadata.json"))
    if about.get("is_pytree") is not False or f"{place}/storage/meta.json" not in folder:
        return NotRead("its storage holds something else than a TensorDict")
    writer = parse_json(folder.read(f"{place}/writer/metadata.json"))
    shape = parse_json(folder.read(f"{place}/storage/meta.json"))["shape"]
    content = TensorDict(read_tensordict(folder, f"{place}/storage"), batch_size=shape)
    state: dict[str, Any] = {
        "_storage": {"_storage": content.state_dict(), "initialized": True, "_len": about["len"]},
        "_writer": {"_cursor": writer["cursor"], "_write_count": writer.get("write_count", 0)},
    }
    if f"{place}/sampler/sumtree.memmap" in folder:
        priorities = parse_json(folder.read(f"{place}/sampler/sampler_metadata.json"))
        for tree in ("sum", "min"):
            name, shape = f"{place}/sampler/{tree}tree.memmap", [int(priorities["_max_capacity"])]
            priorities[f"_{tree}_tree"] = _read_tensor(folder, name, shape, torch.float64)
        state["_sampler"] = priorities
    return {"replay_buffer": state}


_ADAPTERS: dict[str, Callable[[Folder, str], Any]] = {
    "torchrl.state_dict": _read_state_dict,
    "torchrl.dump_load": _read_replay_buffer,
}


def _decode(node: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    """Rebuild a state dict from its schema and tensors."""
    kind = node["kind"]
    if kind in _VALUES:
        return _VALUES[kind](node)
    if kind in _SEQUENCES:
        return _SEQUENCES[kind]([_decode(item, tensors) for item in node["items"]])
    if kind in ("dict", "ordered_dict"):
        pairs = ((_decode(k, tensors), _decode(v, tensors)) for k, v in node["items"])
        if kind == "dict":
            return dict(pairs)
        ordered = OrderedDict(pairs)
        if node.get("metadata") is not None:
            set_attributes(ordered, {"_metadata": _decode(node["metadata"], tensors)})
        return ordered
    if kind not in ("tensor", "numpy"):
        raise MalformedError(f"its state holds a {kind!r}, which is unknown")
    tensor = tensors[node["key"]]
    if not isinstance(tensor, torch.Tensor):
        raise MalformedError(f"{node['key']!r} is no tensor")
    if kind == "tensor":
        return tensor
    array = tensor.numpy()
    if array.dtype != plain_dtype(node["dtype"]):
        raise MalformedError(f"an array of {array.dtype} is to be one of {node['dtype']}")
    return array


def _numpy_scalar(node: Mapping[str, Any]) -> Any:
    dtype, value = plain_dtype(node["dtype"]), node["value"]
    if dtype.kind not in "biufU" or not isinstance(value, (bool, int, float, str)):
        raise MalformedError(f"{shown(value)} is no number of the dtype {dtype}")
    return dtype.type(value)


_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "slice": lambda items: slice(*items),
}
_VALUES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "range": lambda node: range(*node["items"]),
    "torch_size": lambda node: torch.Size(node["items"]),
    "torch_device": lambda node: torch.device(node["value"]),
    "torch_dtype": lambda node: DTYPES[node["value"]],
    "path": lambda node: Path(node["value"]),
    "bytes": lambda node: base64.b64decode(node["value"], validate=True),
    "bytearray": lambda node: bytearray(base64.b64decode(node["value"], validate=True)),
    "complex": lambda node: complex(node["real"], node["imag"]),
    "numpy_scalar": _numpy_scalar,
    "ellipsis": lambda node: ...,
    "value": lambda node: node["value"],
}


# -- The format of torchsnapshot.

_PRIMITIVES: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "str": str,
    "bool": {"True": True, "False": False}.__getitem__,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "float": lambda text: struct.unpack("<d", base64.b64decode(text, validate=True))[0],
}


def _read_snapshot(folder: Folder, snapshot: Mapping[str, Any]) -> Content:
    if snapshot["world_size"] != 1:
        raise MalformedError(f"it is of {shown(snapshot['world_size'])} processes")
    entries = snapshot["manifest"]
    check_room(sum(map(_snapshot_nbytes, entries.values())), "its tensors")
    objects = [entry["location"] for entry in entries.values() if entry["type"] == "object"]
    if len(set(objects)) != len(objects):
        raise MalformedError("two objects are at one place")
    paths = [path for path in entries if path.count("/") == 1]
    return Content((unquote(path[2:]), _snapshot_node(folder, entries, path)) for path in paths)


def _snapshot_nbytes(entry: Mapping[str, Any]) -> int:
    """Return the bytes of an entry's tensors, which may lie at one place."""
    if entry["type"] == "ChunkedTensor":
        return sum(_snapshot_nbytes(chunk["tensor"]) for chunk in entry["chunks"])
    return _nbytes(entry["shape"], _snapshot_dtype(entry)) if entry["type"] == "Tensor" else 0


def _snapshot_node(folder: Folder, entries: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path."""
    entry = entries[path]
    kind = entry["type"]
    if kind in ("dict", "OrderedDict"):
        keys = entry["keys"]
        if len(set(map(str, keys))) != len(keys):
            raise MalformedError(f"{shown(path)} has a key twice")
        names = (str(key).replace("%", "%25").replace("/", "%2F") for key in keys)
        nodes = (_snapshot_node(folder, entries, f"{path}/{name}") for name in names)
        return dict(zip(keys, nodes, strict=True))
    if kind == "list":
        items: list[Any] = []
        while (item := f"{path}/{len(items)}") in entries:
            items.append(_snapshot_node(folder, entries, item))
        return items
    if kind == "Tensor":
        return _snapshot_tensor(folder, entry)
    if kind == "ChunkedTensor":  # along the first dimension
        whole = torch.cat([_snapshot_tensor(folder, chunk["tensor"]) for chunk in entry["chunks"]])
        return whole.reshape(entry["shape"])
    if kind == "object":
        return read_torch(folder.read(entry["location"]))
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind](entry["serialized_value"])
    raise MalformedError(f"it holds a {shown(kind)}, which is unknown")


def _snapshot_tensor(folder: Folder, entry: Mapping[str, Any]) -> torch.Tensor:
    dtype, span = _snapshot_dtype(entry), entry["byte_range"]
    return _read_tensor(folder, entry["location"], entry["shape"], dtype, span)


def _snapshot_dtype(entry: Mapping[str, Any]) -> torch.dtype:
    return _dtype(entry["dtype"], entry["serializer"] == "buffer_protocol")
