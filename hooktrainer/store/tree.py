"""State trees: nested Python state, split into plain JSON and a flat dict of tensors, and back.

A *state tree* is what ``state_dict()`` methods return: dicts, lists and tuples of numbers, strings,
tensors, NumPy arrays and TensorDicts. `flatten` splits one into

* a **skeleton**: JSON values only. What JSON has no word for is an object whose first key starts
  with ``$`` and names the type, such as ``{"$tuple": [1, 2]}``;
* **tensors**: every tensor and array, under the path it has in the tree.

`unflatten` is the exact inverse. No pickle is involved and no class is looked up by name, so
reading a skeleton never runs code that came with it.
"""

from __future__ import annotations

import enum
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
)
from tensordict.nn import TensorDictParams

from ..base.untrusted import MalformedError, refusing, shown
from ..base.untrusted.array_file import check_shape, plain_dtype
from ..base.untrusted.read_torch import DTYPES, set_attributes
from ..errors import CheckpointError
from .tensor_spec import TensorSpec

Json: TypeAlias = Any


def flatten(tree: Any) -> tuple[Json, dict[str, torch.Tensor]]:
    """Split a state tree into JSON and tensors.

    Types are kept exactly: dict keys of any type, tuples, the bits of floats, NumPy scalars, the
    ``_metadata`` of an `OrderedDict`, the batch size, device and names of a TensorDict. Not kept:
    strides, ``requires_grad``, and tensor subclasses (a parameter is saved as a tensor). A tensor
    that occurs twice is stored once, and is one tensor again when restored.

    Args:
        tree: The state tree. It is not copied: the tensors returned share its memory.

    Returns:
        The skeleton, and the tensors by name, in the order of the tree.

    Raises:
        CheckpointError: If the tree holds a value that cannot be saved; names its path and type.
    """
    encoder = _Encoder()
    try:
        skeleton = encoder.node(tree, "")
    except RecursionError:
        raise CheckpointError("The state contains itself, or is nested too deep to save.") from None
    return skeleton, encoder.tensors


def unflatten(skeleton: Json, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Rebuild the tree that `flatten` split.

    Args:
        skeleton: The JSON part.
        tensors: The tensors by name. They become part of the tree without a copy; one that was
            saved from another device goes back there if this machine has it.

    Raises:
        CheckpointError: If a tensor is missing, the skeleton has a type this version does not know,
            or is malformed.
    """
    with refusing("The state is malformed", CheckpointError):
        return _Decoder(tensors).node(skeleton)


def blank(specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
    """Tensors of zeros, to try out a skeleton: the system gives no memory for them until used."""
    return {
        # An empty array has strides of 0, which cannot be viewed.
        name: torch.from_numpy(np.zeros(spec.nbytes, np.uint8)).view(spec.dtype).reshape(spec.shape)
        if spec.nbytes
        else torch.empty(spec.shape, dtype=spec.dtype)
        for name, spec in specs.items()
    }


def join(path: str, key: Any) -> str:
    """Return the path of what stands at ``key`` under ``path``: ``modules/policy/0.weight``."""
    step = key if type(key) is str else repr(key)
    return f"{path}/{step}" if path else step


class _Encoder:
    """Turns one tree into JSON; `tensors` collects its tensors, in the order of the tree."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[int, str] = {}  # of the first tensor at each address

    def node(self, value: Any, path: str) -> Json:
        encode = _ENCODERS.get(type(value)) or _encoder_of_subclass(value)
        if encode is None:
            raise _cannot_save(value, path)
        return encode(self, value, path)

    def items(self, values: Iterable[Any], path: str) -> list[Json]:
        return [self.node(value, join(path, index)) for index, value in enumerate(values)]

    def pairs(self, mapping: Mapping[Any, Any], path: str) -> list[list[Json]]:
        return [
            [self.node(key, join(path, key)), self.node(value, join(path, key))]
            for key, value in mapping.items()
        ]

    def add(self, tensor: torch.Tensor, path: str) -> str:
        """Collect ``tensor`` and return its name."""
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


class _Decoder:
    """Rebuilds one tree from its JSON and its tensors."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._copied: set[str] = set()

    def node(self, node: Json) -> Any:
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
        return [self.node(node) for node in nodes]

    def pairs(self, pairs: Json) -> dict[Any, Any]:
        return {self.node(key): self.node(value) for key, value in pairs}

    def tensor(self, name: str) -> torch.Tensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise CheckpointError(
                f"The state has no tensor {shown(name)}: it is incomplete."
            ) from None

    def content(self, name: str) -> bytes:
        """A copy of the bytes under ``name``, which may be made once, since it takes memory."""
        tensor = self.tensor(name)
        if name in self._copied or tensor.dtype is not torch.uint8:
            raise MalformedError(f"{shown(name)} is not the bytes of one value")
        self._copied.add(name)
        return tensor.numpy().tobytes()


def _same_view(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors that begin at one address are one: two views may differ in the rest."""
    return (a.dtype, a.shape, a.stride(), a.device) == (b.dtype, b.shape, b.stride(), b.device)


def _cannot_save(value: Any, path: str, problem: str = "") -> CheckpointError:
    kind = type(value)
    hint = "" if problem else next((hint for base, hint in _HINTS if isinstance(value, base)), "")
    if not hint and callable(getattr(value, "state_dict", None)):
        hint = "save its .state_dict()"
    return CheckpointError(
        f"{path or 'the state'}: {problem or f'a {kind.__module__}.{kind.__qualname__}'} cannot be "
        "saved in a checkpoint. Return tensors, NumPy arrays, TensorDicts, numbers, strings, or "
        f"dicts, lists and tuples of them from state_dict(){f' ({hint})' if hint else ''}."
    )


_HINTS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (enum.Enum, "save its .name or .value"),
    (dict, "dict(...) makes it a plain dict"),
    (tuple, "tuple(...) makes it a plain tuple"),
    (np.ma.MaskedArray, "save its .data and .mask"),
    (np.ndarray, "np.asarray(...) makes it a plain array"),
    (np.random.Generator, "save its .bit_generator.state"),
    ((np.random.RandomState, torch.Generator), "save its .get_state()"),
)


# -- What is more than a line: each type's encoder, then its decoder.


def _dict(encoder: _Encoder, value: dict[Any, Any], path: str) -> Json:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: encoder.node(item, join(path, key)) for key, item in value.items()}
    return {"$dict": encoder.pairs(value, path)}


def _ordered_dict(encoder: _Encoder, value: OrderedDict[Any, Any], path: str) -> Json:
    attributes = encoder.node(vars(value), join(path, "__dict__"))  # nn.Module's _metadata
    return {"$OrderedDict": encoder.pairs(value, path), "attributes": attributes}


def _to_ordered_dict(decoder: _Decoder, pairs: Json, node: Json) -> OrderedDict[Any, Any]:
    result = OrderedDict(decoder.pairs(pairs))
    set_attributes(result, decoder.node(node["attributes"]))
    return result


def _bytes(encoder: _Encoder, value: bytes | bytearray, path: str) -> Json:
    array = np.frombuffer(value, np.uint8).copy()
    return {f"${type(value).__name__}": encoder.add(torch.from_numpy(array), path)}


def _set(encoder: _Encoder, value: set[Any] | frozenset[Any], path: str) -> Json:
    # Sorted, because the order of a set of strings differs from process to process.
    return {f"${type(value).__name__}": encoder.items(sorted(value, key=repr), path)}


def _range(encoder: _Encoder, value: range | slice, path: str) -> Json:
    return {f"${type(value).__name__}": encoder.items((value.start, value.stop, value.step), path)}


def _array(encoder: _Encoder, value: np.ndarray[Any, Any], path: str) -> Json:
    if value.dtype.hasobject or value.dtype.names:
        raise _cannot_save(value, path, f"a NumPy array of dtype {value.dtype}")
    flat = np.asarray(value).reshape(-1)
    if not (flat.flags.c_contiguous and flat.flags.writeable):
        flat = flat.copy()
    name = encoder.add(torch.from_numpy(flat.view(np.uint8)), path)
    return {"$ndarray": name, "dtype": value.dtype.str, "shape": list(value.shape)}


def _to_array(decoder: _Decoder, name: str, node: Json) -> np.ndarray[Any, Any]:
    dtype, shape = plain_dtype(node["dtype"]), node["shape"]
    check_shape(shape, dtype.itemsize)
    data = decoder.tensor(name)
    if data.dtype != torch.uint8 or math.prod(shape) * dtype.itemsize != data.numel():
        raise MalformedError(f"{dtype}{shape} is not of the {data.nbytes} bytes of its array")
    return np.ndarray(shape, dtype, buffer=data.contiguous().numpy())


def _numpy_scalar(_: _Encoder, value: np.generic, path: str) -> Json:
    if value.dtype.hasobject or value.dtype.names:
        raise _cannot_save(value, path)
    return {"$numpy": value.tobytes().hex(), "dtype": value.dtype.str}


def _to_numpy_scalar(decoder: _Decoder, data: str, node: Json) -> Any:
    content, dtype = bytes.fromhex(data), plain_dtype(node["dtype"])
    if len(content) < dtype.itemsize:  # an empty text has more
        raise MalformedError(f"{len(content)} bytes are no {dtype}")
    if dtype.kind == "S":  # from an array it would come without its last zeros
        return np.bytes_(content)
    return np.ndarray((), dtype, buffer=content)[()]


def _tensor(encoder: _Encoder, value: torch.Tensor, path: str) -> Json:
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


def _to_tensor(decoder: _Decoder, name: str, node: Json) -> torch.Tensor:
    tensor = decoder.tensor(name)
    return tensor.to(_here(node["device"])) if "device" in node else tensor


def _to_dtype(_: _Decoder, name: str, node: Json) -> torch.dtype:
    if name not in DTYPES:
        raise CheckpointError(
            f"This version of torch ({torch.__version__}) has no dtype {shown(name)}."
        )
    return DTYPES[name]


def _tensordict(encoder: _Encoder, value: Any, path: str) -> Json:
    return {
        "$TensorDict": encoder.pairs(dict(value.items()), path),
        "batch_size": list(value.batch_size),
        "device": _device_name(value),
        "names": _names(value),
        "locked": type(value) is TensorDict and value.is_locked,
    }


def _to_tensordict(decoder: _Decoder, pairs: Json, node: Json) -> TensorDict:
    result = TensorDict(
        decoder.pairs(pairs),
        batch_size=node["batch_size"],
        device=_here(node["device"]),
        names=node["names"],
    )
    return result.lock_() if node["locked"] else result


def _lazy_stack(encoder: _Encoder, value: Any, path: str) -> Json:
    return {
        "$LazyStackedTensorDict": encoder.items(value.tensordicts, path),
        "stack_dim": value.stack_dim,
        "names": _names(value),
    }


def _to_lazy_stack(decoder: _Decoder, items: Json, node: Json) -> Any:
    stack = LazyStackedTensorDict.lazy_stack(decoder.items(items), node["stack_dim"])
    if node["names"] is not None:
        stack.names = node["names"]
    return stack


def _non_tensor(encoder: _Encoder, value: Any, path: str) -> Json:
    return {
        "$NonTensorData": encoder.node(value.data, path),
        "batch_size": list(value.batch_size),
        "device": _device_name(value),
    }


def _to_non_tensor(decoder: _Decoder, data: Json, node: Json) -> NonTensorData:
    return NonTensorData(
        data=decoder.node(data), batch_size=node["batch_size"], device=_here(node["device"])
    )


def _names(value: Any) -> list[str | None] | None:
    return list(value.names) if any(value.names) else None


def _device_name(value: Any) -> str | None:
    return None if value.device is None else str(value.device)


def _here(device: str | None) -> torch.device | None:
    """The device, or the CPU where this machine has no such device."""
    if device is None:
        return None
    wanted = torch.device(device)
    module = getattr(torch, wanted.type, None)
    present = module.device_count() if module is not None and module.is_available() else 0
    return wanted if (wanted.index or 0) < present else torch.device("cpu")


# -- The priorities in a prioritized sampler of TorchRL: C++ trees, saved as their leaves. The sums
# and minima above the leaves follow from them, so a rebuilt tree draws what the saved one would.

EXTENSION = "torchrl._torchrl"
_SEGMENT_TREES = frozenset(
    f"{device}{what}SegmentTreeFp{bits}"
    for device in ("", "Cuda")
    for what in ("Sum", "Min")
    for bits in (32, 64)
)


def is_segment_tree(value: Any) -> bool:
    """Whether ``value`` is a segment tree of TorchRL."""
    return type(value).__module__ == EXTENSION and type(value).__name__ in _SEGMENT_TREES


def segment_leaves(tree: Any) -> torch.Tensor:
    """The leaves of a segment tree, ``[size]``, on its device."""
    device = getattr(tree, "device", "cpu")
    return torch.as_tensor(tree[torch.arange(len(tree), device=device)])


def segment_tree(kind: str, leaves: torch.Tensor) -> Any:
    """The tree of a kind with these leaves; one from a GPU is one of the CPU where there is none.

    Raises:
        CheckpointError: If TorchRL's C++ extension does not load, or has no such tree.
    """
    if not leaves.is_cuda:
        kind = kind.removeprefix("Cuda")
    try:
        extension = import_module(EXTENSION)
    except ImportError as error:
        raise CheckpointError(
            "the state holds priorities of a TorchRL sampler, and TorchRL's extension does not "
            f"load with torch {torch.__version__} ({error}): install the version that fits, or use "
            "hooktrainer.replay.PrioritizedSampler."
        ) from error
    made = getattr(extension, kind, None) if kind in _SEGMENT_TREES else None
    if made is None or leaves.ndim != 1 or f"Fp{leaves.element_size() * 8}" not in kind:
        raise CheckpointError(f"the state holds a tree {kind!r}, which TorchRL does not have.")
    tree = made(len(leaves), *([leaves.device] if leaves.is_cuda else []))
    tree[torch.arange(len(leaves), device=leaves.device)] = leaves
    return tree


# -- The types that there are. None of the functions runs foreign code.

_ENCODERS: dict[type, Callable[[_Encoder, Any, str], Json]] = {
    **dict.fromkeys((type(None), bool, str), lambda _, value, path: value),
    # JSON readers are only good for 64 bits, and Python refuses to parse very long decimals.
    int: lambda _, value, path: value if -(2**63) <= value < 2**63 else {"$int": hex(value)},
    # repr() round-trips every finite float, -0.0 too; JSON has no word for the others.
    float: lambda _, value, path: value if value - value == 0 else {"$float": repr(value)},
    complex: lambda _, value, path: {"$complex": [repr(value.real), repr(value.imag)]},
    bytes: _bytes,
    bytearray: _bytes,
    list: _Encoder.items,
    tuple: lambda encoder, value, path: {"$tuple": encoder.items(value, path)},
    set: _set,
    frozenset: _set,
    range: _range,
    slice: _range,
    deque: lambda encoder, value, path: {
        "$deque": encoder.items(value, path),
        "maxlen": value.maxlen,
    },
    dict: _dict,
    OrderedDict: _ordered_dict,
    type(Path()): lambda _, value, path: {"$Path": str(value)},
    np.ndarray: _array,
    torch.Tensor: _tensor,
    torch.dtype: lambda _, value, path: {"$dtype": str(value).removeprefix("torch.")},
    torch.device: lambda _, value, path: {"$device": str(value)},
    torch.Size: lambda _, value, path: {"$Size": list(value)},
    TensorDict: _tensordict,
    TensorDictParams: _tensordict,
    LazyStackedTensorDict: _lazy_stack,
    NonTensorStack: _lazy_stack,
    NonTensorData: _non_tensor,
}


def _encoder_of_subclass(value: Any) -> Callable[[_Encoder, Any, str], Json] | None:
    """Parameters, memory maps, NumPy scalars and segment trees; nothing else can be rebuilt."""
    kind = type(value)
    if isinstance(value, torch.Tensor):  # but not one that is a wrapper around others
        plain = kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        return _tensor if plain else None
    if isinstance(value, np.generic):
        return _numpy_scalar
    if is_segment_tree(value):
        return lambda encoder, tree, path: {
            "$SegmentTree": encoder.node(segment_leaves(tree), path),
            "kind": kind.__name__,
        }
    return _array if isinstance(value, np.memmap) else None


_DECODERS: dict[str, Callable[[_Decoder, Any, Json], Any]] = {
    "$int": lambda _, digits, node: int(digits, 16),
    "$float": lambda _, text, node: float(text),
    "$complex": lambda _, parts, node: complex(*map(float, parts)),
    "$bytes": lambda decoder, name, node: decoder.content(name),
    "$bytearray": lambda decoder, name, node: bytearray(decoder.content(name)),
    "$tuple": lambda decoder, items, node: tuple(decoder.items(items)),
    "$set": lambda decoder, items, node: set(decoder.items(items)),
    "$frozenset": lambda decoder, items, node: frozenset(decoder.items(items)),
    "$range": lambda decoder, items, node: range(*decoder.items(items)),
    "$slice": lambda decoder, items, node: slice(*decoder.items(items)),
    "$deque": lambda decoder, items, node: deque(decoder.items(items), node["maxlen"]),
    "$dict": lambda decoder, pairs, node: decoder.pairs(pairs),
    "$OrderedDict": _to_ordered_dict,
    "$Path": lambda _, text, node: Path(text),
    "$ndarray": _to_array,
    "$numpy": _to_numpy_scalar,
    "$tensor": _to_tensor,
    "$dtype": _to_dtype,
    "$device": lambda _, text, node: torch.device(text),
    "$Size": lambda _, sizes, node: torch.Size(sizes),
    "$TensorDict": _to_tensordict,
    "$LazyStackedTensorDict": _to_lazy_stack,
    "$NonTensorData": _to_non_tensor,
    "$SegmentTree": lambda decoder, leaves, node: segment_tree(node["kind"], decoder.node(leaves)),
}
