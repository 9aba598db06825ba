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
    refusing,
    shown,
)
from ..base.untrusted.array_file import check_shape, plain_dtype
from ..base.untrusted.read_torch import DTYPES, read_pickle, read_torch
from ..errors import CheckpointError
from ..store import unflatten

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
        self._root = zipfile.Path(archive) if archive else path
        self._archive = archive
        entries = archive.infolist() if archive else []
        if len({entry.filename for entry in entries}) != len(entries):
            raise MalformedError("it has two files of one name")
        for entry in entries:  # zipfile bounds what it unpacks of these only
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise MalformedError(f"{shown(entry.filename)} is packed as TorchRL never does")
        if sum(entry.file_size for entry in entries) > _DENSEST * path.stat().st_size:
            raise MalformedError("its files are to be larger than they can be")

    def __contains__(self, name: str) -> bool:
        return bool((self._root / check_name(name)).is_file())

    def names(self, place: str = "") -> set[str]:
        """Return the names in a directory; none if there is no such directory."""
        inside = self._root / check_name(place) if place else self._root
        return {entry.name for entry in inside.iterdir()} if inside.is_dir() else set()

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
        with ExitStack() as stack:
            file: Any
            if self._archive:
                file = stack.enter_context(self._archive.open(name))
                found = self._archive.getinfo(name).file_size
            else:
                assert isinstance(self._root, Path)
                file = stack.enter_context(open_file(self._root / name, self._root))
                found = os.fstat(file.fileno()).st_size
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
    with refusing(place):
        skeleton = _skeleton(parse_json(folder.read(f"{place}/state.json"), nan=True), tensors)
        return unflatten(skeleton, tensors)


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


_TAGS = {"torch_size": "Size", "torch_device": "device", "torch_dtype": "dtype", "path": "Path"}
"""Our names of TorchRL's types, where they differ."""


def _skeleton(node: Mapping[str, Any], tensors: dict[str, Any]) -> Any:
    """Convert TorchRL's schema of a state to that of `flatten`; add the bytes of its arrays."""
    kind = node["kind"]
    tag = f"${_TAGS.get(kind, kind)}"
    if kind == "value":
        return node["value"]
    if kind == "tensor":
        return {"$tensor": [node["key"]]}
    if kind == "numpy":
        tensor, name = tensors[node["key"]], f"{node['key']}/bytes"
        tensors[name] = tensor.reshape(-1).view(torch.uint8)
        return {"$ndarray": [{"$tensor": [name]}, node["dtype"], list(tensor.shape)]}
    if kind == "numpy_scalar":
        dtype, value = plain_dtype(node["dtype"]), node["value"]
        if dtype.kind not in "biufU" or not isinstance(value, (bool, int, float, str)):
            raise MalformedError(f"{shown(value)} is no number of the dtype {dtype}")
        scalar = dtype.type(value)
        return {"$numpy": [scalar.tobytes().hex(), scalar.dtype.str]}
    if kind == "complex":
        return {tag: [[node["real"], node["imag"]]]}
    if kind in ("dict", "ordered_dict"):
        pairs = [[_skeleton(part, tensors) for part in pair] for pair in node["items"]]
        if kind == "dict":
            return {"$dict": [pairs]}
        about = node.get("metadata")
        attributes = {} if about is None else {"_metadata": _skeleton(about, tensors)}
        return {"$OrderedDict": [{"$dict": [pairs]}, attributes]}
    if "items" not in node:
        return {tag: [node["value"]]}
    items = node["items"]
    if kind not in ("torch_size", "range"):
        items = [_skeleton(item, tensors) for item in items]
    return items if kind == "list" else {tag: [items]}


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
    tensors = [entry for entry in entries.values() if entry["type"] == "Tensor"]
    tensors += [chunk["tensor"] for entry in entries.values() for chunk in entry.get("chunks", ())]
    nbytes = sum(_nbytes(tensor["shape"], _snapshot_dtype(tensor)) for tensor in tensors)
    check_room(nbytes, "its tensors")  # which may lie at one place
    objects = [entry["location"] for entry in entries.values() if entry["type"] == "object"]
    if len(set(objects)) != len(objects):
        raise MalformedError("two objects are at one place")
    paths = [path for path in entries if path.count("/") == 1]
    return Content((unquote(path[2:]), _snapshot_node(folder, entries, path)) for path in paths)


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
