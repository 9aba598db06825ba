"""How each type of value becomes JSON, with its tensors set aside: one function a type."""

from __future__ import annotations

import dataclasses
import enum
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    is_tensorclass,
)
from tensordict.nn import TensorDictParams

from ..errors import CheckpointError
from . import trees

Json: TypeAlias = Any


def join(path: str, key: Any) -> str:
    """Return the path of what stands at ``key`` under ``path``: ``modules/policy/0.weight``."""
    step = key if type(key) is str else repr(key)
    return f"{path}/{step}" if path else step


class Encoder:
    """Turns one tree into JSON; `tensors` collects what is set aside, in the order of the tree."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[int, str] = {}  # of the first tensor at each address

    def node(self, value: Any, path: str) -> Json:
        """Return the JSON of ``value``, which stands at ``path``."""
        encode = _ENCODERS.get(type(value))
        if encode is None:
            encode = _encoder_of_subclass(value)
        if encode is None:
            raise _cannot_save(value, path)
        return encode(self, value, path)

    def items(self, values: Iterable[Any], path: str) -> list[Json]:
        """Return the JSON of each value of a sequence."""
        return [self.node(value, join(path, index)) for index, value in enumerate(values)]

    def pairs(self, mapping: Mapping[Any, Any], path: str) -> list[list[Json]]:
        """Return the JSON of each key and value of a mapping, in pairs."""
        return [
            [self.node(key, join(path, key)), self.node(value, join(path, key))]
            for key, value in mapping.items()
        ]

    def add(self, tensor: torch.Tensor, path: str) -> str:
        """Take up ``tensor`` and return its name."""
        address = tensor.data_ptr()
        known = self._names.get(address)
        if known is not None and _same_view(self.tensors[known], tensor):
            return known
        name, count = path, 1
        while name in self.tensors:  # the keys 1 and "1", or "a/b" and "a" → "b"
            count += 1
            name = f"{path}~{count}"
        self.tensors[name] = tensor
        if tensor.numel():
            self._names.setdefault(address, name)
        return name


def _same_view(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors that begin at one address are one: two views may differ in the rest."""
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and a.stride() == b.stride()
        and a.device == b.device
    )


def _cannot_save(value: Any, path: str, problem: str = "") -> CheckpointError:
    kind = type(value)
    where = path or "the state"
    hint = next((hint for base, hint in _HINTS if isinstance(value, base) and not problem), "")
    if not hint and is_tensorclass(value):
        hint = "save its .to_tensordict()"
    if not hint and dataclasses.is_dataclass(value):
        hint = "dataclasses.asdict(...) makes it a dict"
    if not hint and callable(getattr(value, "state_dict", None)):
        hint = "save its .state_dict()"
    return CheckpointError(
        f"{where}: {problem or f'a {kind.__module__}.{kind.__qualname__}'} cannot be saved in a "
        "checkpoint. Return tensors, NumPy arrays, TensorDicts, numbers, strings, or dicts, lists "
        f"and tuples of them from state_dict(){f' ({hint})' if hint else ''}."
    )


_HINTS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (enum.Enum, "save its .name or .value"),
    (defaultdict, "dict(...) makes it a plain dict"),
    (dict, "dict(...) makes it a plain dict"),
    (tuple, "tuple(...) makes it a plain tuple"),
    (np.ma.MaskedArray, "save its .data and .mask"),
    (np.ndarray, "np.asarray(...) makes it a plain array"),
    (np.random.Generator, "save its .bit_generator.state"),
    (np.random.RandomState, "save its .get_state()"),
    (torch.Generator, "save its .get_state()"),
)


# --- Python values -----------------------------------------------------------------------------


def _plain(_: Encoder, value: Any, path: str) -> Json:
    return value


def _int(_: Encoder, value: int, path: str) -> Json:
    # JSON readers are only good for 64 bits, and Python refuses to parse very long decimals.
    return value if -(2**63) <= value < 2**63 else {"$int": hex(value)}


def _float(_: Encoder, value: float, path: str) -> Json:
    # repr() round-trips every finite float, -0.0 too; JSON has no word for the others.
    return value if value - value == 0 else {"$float": repr(value)}


def _complex(_: Encoder, value: complex, path: str) -> Json:
    return {"$complex": [repr(value.real), repr(value.imag)]}


def _bytes(encoder: Encoder, value: bytes | bytearray, path: str) -> Json:
    array = np.frombuffer(value, np.uint8).copy()
    return {f"${type(value).__name__}": encoder.add(torch.from_numpy(array), path)}


def _list(encoder: Encoder, value: list[Any], path: str) -> Json:
    return encoder.items(value, path)


def _tuple(encoder: Encoder, value: tuple[Any, ...], path: str) -> Json:
    return {"$tuple": encoder.items(value, path)}


def _set(encoder: Encoder, value: set[Any] | frozenset[Any], path: str) -> Json:
    # Sorted, because the order of a set of strings differs from process to process.
    return {f"${type(value).__name__}": encoder.items(sorted(value, key=repr), path)}


def _range(encoder: Encoder, value: range | slice, path: str) -> Json:
    return {f"${type(value).__name__}": encoder.items((value.start, value.stop, value.step), path)}


def _deque(encoder: Encoder, value: deque[Any], path: str) -> Json:
    return {"$deque": encoder.items(value, path), "maxlen": value.maxlen}


def _dict(encoder: Encoder, value: dict[Any, Any], path: str) -> Json:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: encoder.node(item, join(path, key)) for key, item in value.items()}
    return {"$dict": encoder.pairs(value, path)}


def _ordered_dict(encoder: Encoder, value: OrderedDict[Any, Any], path: str) -> Json:
    attributes = encoder.node(vars(value), join(path, "__dict__"))  # nn.Module's _metadata
    return {"$OrderedDict": encoder.pairs(value, path), "attributes": attributes}


def _path(_: Encoder, value: Path, path: str) -> Json:
    return {"$Path": str(value)}


# --- NumPy -------------------------------------------------------------------------------------


def _ndarray(encoder: Encoder, value: np.ndarray[Any, Any], path: str) -> Json:
    if value.dtype.hasobject or value.dtype.names:
        raise _cannot_save(value, path, f"a NumPy array of dtype {value.dtype}")
    flat = np.asarray(value).reshape(-1)
    if not (flat.flags.c_contiguous and flat.flags.writeable):
        flat = flat.copy()
    name = encoder.add(torch.from_numpy(flat.view(np.uint8)), path)
    return {"$ndarray": name, "dtype": value.dtype.str, "shape": list(value.shape)}


def _numpy_scalar(_: Encoder, value: np.generic, path: str) -> Json:
    if value.dtype.hasobject or value.dtype.names:
        raise _cannot_save(value, path)
    return {"$numpy": value.tobytes().hex(), "dtype": value.dtype.str}


# --- torch -------------------------------------------------------------------------------------


def _tensor(encoder: Encoder, value: torch.Tensor, path: str) -> Json:
    device = value.device
    if value.layout is not torch.strided or value.is_quantized or device.type == "meta":
        kind = "quantized" if value.is_quantized else value.layout
        raise _cannot_save(value, path, f"a {kind} tensor on {device}")
    plain = value
    if type(value) is not torch.Tensor or value.requires_grad:
        plain = value.detach().as_subclass(torch.Tensor)
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    name = encoder.add(plain, path)
    return {"$tensor": name} if device.type == "cpu" else {"$tensor": name, "device": str(device)}


def _dtype(_: Encoder, value: torch.dtype, path: str) -> Json:
    return {"$dtype": str(value).removeprefix("torch.")}


def _device(_: Encoder, value: torch.device, path: str) -> Json:
    return {"$device": str(value)}


def _size(_: Encoder, value: torch.Size, path: str) -> Json:
    return {"$Size": list(value)}


# --- TensorDict --------------------------------------------------------------------------------


def _tensordict(encoder: Encoder, value: Any, path: str) -> Json:
    return {
        "$TensorDict": encoder.pairs(dict(value.items()), path),
        "batch_size": list(value.batch_size),
        "device": None if value.device is None else str(value.device),
        "names": _names(value),
        "locked": type(value) is TensorDict and value.is_locked,
    }


def _lazy_stack(encoder: Encoder, value: Any, path: str) -> Json:
    return {
        "$LazyStackedTensorDict": encoder.items(value.tensordicts, path),
        "stack_dim": value.stack_dim,
        "names": _names(value),
    }


def _non_tensor(encoder: Encoder, value: Any, path: str) -> Json:
    return {
        "$NonTensorData": encoder.node(value.data, path),
        "batch_size": list(value.batch_size),
        "device": None if value.device is None else str(value.device),
    }


def _segment_tree(encoder: Encoder, value: Any, path: str) -> Json:
    return {"$SegmentTree": encoder.node(trees.leaves(value), path), "kind": type(value).__name__}


def _names(value: Any) -> list[str | None] | None:
    return list(value.names) if any(value.names) else None


_ENCODERS: dict[type, Callable[[Encoder, Any, str], Json]] = {
    type(None): _plain,
    bool: _plain,
    str: _plain,
    int: _int,
    float: _float,
    complex: _complex,
    bytes: _bytes,
    bytearray: _bytes,
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    range: _range,
    slice: _range,
    deque: _deque,
    dict: _dict,
    OrderedDict: _ordered_dict,
    type(Path()): _path,
    np.ndarray: _ndarray,
    torch.Tensor: _tensor,
    torch.dtype: _dtype,
    torch.device: _device,
    torch.Size: _size,
    TensorDict: _tensordict,
    TensorDictParams: _tensordict,
    LazyStackedTensorDict: _lazy_stack,
    NonTensorStack: _lazy_stack,
    NonTensorData: _non_tensor,
}


def _encoder_of_subclass(value: Any) -> Callable[[Encoder, Any, str], Json] | None:
    """Parameters, memory maps, NumPy scalars and TorchRL's trees; nothing else can be rebuilt."""
    if isinstance(value, torch.Tensor):  # but not one that is a wrapper around others
        plain = type(value).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        return _tensor if plain else None
    if isinstance(value, np.generic):
        return _numpy_scalar
    if trees.is_tree(value):
        return _segment_tree
    return _ndarray if isinstance(value, np.memmap) else None
