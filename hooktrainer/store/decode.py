"""How each kind of JSON node becomes a value again: one function a type, none runs foreign code."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, TensorDict

from ..base.untrusted import MalformedError, shown
from ..base.untrusted.array_file import check_shape, plain_dtype
from ..base.untrusted.read_torch import DTYPES, set_attributes
from ..errors import CheckpointError
from . import trees

Json: TypeAlias = Any


class Decoder:
    """Rebuilds one tree from its JSON and its tensors."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._copied: set[str] = set()

    def node(self, node: Json) -> Any:
        """Return the value of a JSON node."""
        if type(node) is list:
            return self.items(node)
        if type(node) is not dict:
            return node
        tag = next(iter(node), "")
        if not tag.startswith("$"):
            return {key: self.node(item) for key, item in node.items()}
        if tag not in _DECODERS:
            raise CheckpointError(
                f"The state holds a value of type {shown(tag[1:])}, unknown to this "
                "version of hooktrainer. It was written by a newer one: update hooktrainer to load "
                "it."
            )
        return _DECODERS[tag](self, node[tag], node)

    def items(self, nodes: Iterable[Json]) -> list[Any]:
        """Return the values of a sequence."""
        return [self.node(node) for node in nodes]

    def tensor(self, name: str) -> torch.Tensor:
        """Return the tensor set aside under ``name``."""
        try:
            return self._tensors[name]
        except KeyError:
            raise CheckpointError(
                f"The state has no tensor {shown(name)}: it is incomplete."
            ) from None

    def buffer(self, name: str) -> torch.Tensor:
        """Return the bytes set aside under ``name``, to be copied: once, since that takes memory.

        Raises:
            MalformedError: If it is asked for again, or holds anything but bytes.
        """
        tensor = self.tensor(name)
        if name in self._copied or tensor.dtype is not torch.uint8:
            raise MalformedError(f"{shown(name)} is not the bytes of one value")
        self._copied.add(name)
        return tensor


def _here(device: str | None) -> torch.device | None:
    """The device, or the CPU where this machine has no such device."""
    if device is None:
        return None
    wanted = torch.device(device)
    if wanted.type == "cpu":
        return wanted
    module = getattr(torch, wanted.type, None)
    present = module.device_count() if module is not None and module.is_available() else 0
    return wanted if (wanted.index or 0) < present else torch.device("cpu")


def _bytes(decoder: Decoder, name: str, node: Json) -> bytes:
    return decoder.buffer(name).numpy().tobytes()


def _dict(decoder: Decoder, pairs: Json, node: Json) -> dict[Any, Any]:
    return {decoder.node(key): decoder.node(value) for key, value in pairs}


def _ordered_dict(decoder: Decoder, pairs: Json, node: Json) -> OrderedDict[Any, Any]:
    result = OrderedDict(_dict(decoder, pairs, node))
    set_attributes(result, decoder.node(node["attributes"]))
    return result


def _ndarray(decoder: Decoder, name: str, node: Json) -> np.ndarray[Any, Any]:
    dtype, shape = plain_dtype(node["dtype"]), node["shape"]
    check_shape(shape, dtype.itemsize)
    data = decoder.tensor(name)
    if data.dtype != torch.uint8 or math.prod(shape) * dtype.itemsize != data.numel():
        raise MalformedError(f"{dtype}{shape} is not of the {data.nbytes} bytes of its array")
    return np.ndarray(shape, dtype, buffer=data.contiguous().numpy())


def _numpy_scalar(decoder: Decoder, data: str, node: Json) -> Any:
    content, dtype = bytes.fromhex(data), plain_dtype(node["dtype"])
    if len(content) < dtype.itemsize:  # an empty text has more
        raise MalformedError(f"{len(content)} bytes are no {dtype}")
    if dtype.kind == "S":  # from an array it would come without its last zeros
        return np.bytes_(content)
    return np.ndarray((), dtype, buffer=content)[()]


def _tensor(decoder: Decoder, name: str, node: Json) -> torch.Tensor:
    tensor = decoder.tensor(name)
    return tensor.to(_here(node["device"])) if "device" in node else tensor


def _dtype(decoder: Decoder, name: str, node: Json) -> torch.dtype:
    if name not in DTYPES:
        raise CheckpointError(
            f"This version of torch ({torch.__version__}) has no dtype {shown(name)}."
        )
    return DTYPES[name]


def _tensordict(decoder: Decoder, pairs: Json, node: Json) -> TensorDict:
    result = TensorDict(
        _dict(decoder, pairs, node),
        batch_size=node["batch_size"],
        device=_here(node["device"]),
        names=node["names"],
    )
    return result.lock_() if node["locked"] else result


def _lazy_stack(decoder: Decoder, items: Json, node: Json) -> Any:
    stack = LazyStackedTensorDict.lazy_stack(decoder.items(items), node["stack_dim"])
    if node["names"] is not None:
        stack.names = node["names"]
    return stack


def _non_tensor(decoder: Decoder, data: Json, node: Json) -> NonTensorData:
    return NonTensorData(
        data=decoder.node(data), batch_size=node["batch_size"], device=_here(node["device"])
    )


def _segment_tree(decoder: Decoder, leaves: Json, node: Json) -> Any:
    return trees.rebuild(node["kind"], decoder.node(leaves))


_DECODERS: dict[str, Callable[[Decoder, Any, Json], Any]] = {
    "$int": lambda _, digits, node: int(digits, 16),
    "$float": lambda _, text, node: float(text),
    "$complex": lambda _, parts, node: complex(*map(float, parts)),
    "$bytes": _bytes,
    "$bytearray": lambda decoder, name, node: bytearray(_bytes(decoder, name, node)),
    "$tuple": lambda decoder, items, node: tuple(decoder.items(items)),
    "$set": lambda decoder, items, node: set(decoder.items(items)),
    "$frozenset": lambda decoder, items, node: frozenset(decoder.items(items)),
    "$range": lambda decoder, items, node: range(*decoder.items(items)),
    "$slice": lambda decoder, items, node: slice(*decoder.items(items)),
    "$deque": lambda decoder, items, node: deque(decoder.items(items), node["maxlen"]),
    "$dict": _dict,
    "$OrderedDict": _ordered_dict,
    "$Path": lambda _, text, node: Path(text),
    "$ndarray": _ndarray,
    "$numpy": _numpy_scalar,
    "$tensor": _tensor,
    "$dtype": _dtype,
    "$device": lambda _, text, node: torch.device(text),
    "$Size": lambda _, sizes, node: torch.Size(sizes),
    "$TensorDict": _tensordict,
    "$LazyStackedTensorDict": _lazy_stack,
    "$NonTensorData": _non_tensor,
    "$SegmentTree": _segment_tree,
}
