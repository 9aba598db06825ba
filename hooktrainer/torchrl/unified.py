"""The components in a checkpoint of TorchRL's `Checkpoint`: state dicts and replay buffers."""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

from ..base.untrusted import MalformedError, check_name, parse_json, shown
from ..base.untrusted.array_file import plain_dtype
from ..base.untrusted.read_torch import DTYPES, read_torch, set_attributes
from .memmap import Folder, read_tensordict, read_values


class NotRead(str):
    """Why a component was not read."""


def read_components(folder: Folder, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return each component's state by its name; a `NotRead`, where its form is not known.

    Raises:
        MalformedError: If a component is damaged.
    """
    found: dict[str, Any] = {}
    places: set[str] = set()
    for name, record in manifest["components"].items():
        place = check_name(record["path"])
        if place in places:
            raise MalformedError(f"two components are at {place}")
        places.add(place)
        if record["adapter"] == "torchrl.state_dict":
            found[name] = _state_dict(folder, place)
        elif record["adapter"] == "torchrl.dump_load":
            found[name] = _replay_buffer(folder, place)
        else:
            found[name] = NotRead(f"it was written by {record['adapter']!r}")
    return found


def _state_dict(folder: Folder, place: str) -> Any:
    if f"{place}/state.pt" in folder:
        return read_torch(folder.read(f"{place}/state.pt"))
    if f"{place}/state/meta.json" not in folder:
        if not folder.names(place):
            raise MalformedError(f"it has no {place}")
        return NotRead("it is packed; save it with StateDictCheckpointAdapter('directory')")
    tensors = read_tensordict(folder, f"{place}/state")
    return _Decoder(tensors).node(parse_json(folder.read(f"{place}/state.json"), nan=True))


class _Decoder:
    """Rebuilds a state dict from its schema and its tensors."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = tensors

    def node(self, node: Mapping[str, Any]) -> Any:
        decode = _DECODERS.get(node["kind"])
        if decode is None:
            raise MalformedError(f"its state holds a {node['kind']!r}, which is unknown")
        return decode(self, node)

    def items(self, node: Mapping[str, Any]) -> list[Any]:
        return [self.node(item) for item in node["items"]]

    def tensor(self, node: Mapping[str, Any]) -> torch.Tensor:
        tensor = self._tensors[node["key"]]
        if not isinstance(tensor, torch.Tensor):
            raise MalformedError(f"{node['key']!r} is no tensor")
        return tensor

    def mapping(self, node: Mapping[str, Any]) -> dict[Any, Any]:
        pairs = ((self.node(key), self.node(value)) for key, value in node["items"])
        if node["kind"] == "dict":
            return dict(pairs)
        mapping = OrderedDict(pairs)
        if node.get("metadata") is not None:
            set_attributes(mapping, {"_metadata": self.node(node["metadata"])})
        return mapping

    def array(self, node: Mapping[str, Any]) -> Any:
        array = self.tensor(node).numpy()
        if array.dtype != plain_dtype(node["dtype"]):
            raise MalformedError(f"an array of {array.dtype} is to be one of {node['dtype']}")
        return array

    def scalar(self, node: Mapping[str, Any]) -> Any:
        dtype, value = plain_dtype(node["dtype"]), node["value"]
        if dtype.kind not in "biufU" or not isinstance(value, (bool, int, float, str)):
            raise MalformedError(f"{shown(value)} is no number of the dtype {dtype}")
        return dtype.type(value)


_DECODERS: dict[str, Callable[[_Decoder, Mapping[str, Any]], Any]] = {
    "tensor": _Decoder.tensor,
    "numpy": _Decoder.array,
    "dict": _Decoder.mapping,
    "ordered_dict": _Decoder.mapping,
    "list": _Decoder.items,
    "tuple": lambda decoder, node: tuple(decoder.items(node)),
    "set": lambda decoder, node: set(decoder.items(node)),
    "frozenset": lambda decoder, node: frozenset(decoder.items(node)),
    "slice": lambda decoder, node: slice(*decoder.items(node)),
    "range": lambda _, node: range(*node["items"]),
    "torch_size": lambda _, node: torch.Size(node["items"]),
    "torch_device": lambda _, node: torch.device(node["value"]),
    "torch_dtype": lambda _, node: DTYPES[node["value"]],
    "path": lambda _, node: Path(node["value"]),
    "bytes": lambda _, node: base64.b64decode(node["value"], validate=True),
    "bytearray": lambda _, node: bytearray(base64.b64decode(node["value"], validate=True)),
    "complex": lambda _, node: complex(node["real"], node["imag"]),
    "numpy_scalar": _Decoder.scalar,
    "ellipsis": lambda *_: Ellipsis,
    "value": lambda _, node: node["value"],
}


def _replay_buffer(folder: Folder, place: str) -> Any:
    """The state of a replay buffer with one storage of tensors."""
    if f"{place}/storage/storage_metadata.json" not in folder:
        return NotRead("it is no replay buffer with a storage of tensors")
    about = parse_json(folder.read(f"{place}/storage/storage_metadata.json"))
    if about.get("is_pytree") is not False or f"{place}/storage/meta.json" not in folder:
        return NotRead("its storage holds something else than a TensorDict")
    writer = parse_json(folder.read(f"{place}/writer/metadata.json"))
    shape = parse_json(folder.read(f"{place}/storage/meta.json"))["shape"]
    content = TensorDict(read_tensordict(folder, f"{place}/storage"), batch_size=shape)
    state = {
        "_storage": {
            "_storage": content.state_dict(),
            "initialized": True,
            "_len": about["len"],
        },
        "_writer": {"_cursor": writer["cursor"], "_write_count": writer.get("write_count", 0)},
    }
    if f"{place}/sampler/sumtree.memmap" in folder:
        state["_sampler"] = _priorities(folder, f"{place}/sampler")
    return {"replay_buffer": state}


def _priorities(folder: Folder, place: str) -> dict[str, Any]:
    about = parse_json(folder.read(f"{place}/sampler_metadata.json"))
    trees = {
        f"_{short}_tree": read_values(
            folder, f"{place}/{short}tree.memmap", int(about["_max_capacity"]), torch.float64
        )
        for short in ("sum", "min")
    }
    return about | trees
