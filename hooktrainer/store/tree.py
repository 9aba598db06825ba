"""State trees: nested Python state, split into plain JSON and a flat dict of tensors, and back.

A *state tree* is what ``state_dict()`` methods return: dicts, lists and tuples of numbers, strings,
tensors, NumPy arrays and TensorDicts. `flatten` splits one into

* a **skeleton**: JSON values only. A value that JSON lacks is an object with one key, which names
  its type after a ``$``, and the parts that it is made of: ``{"$deque": [[1, 2], 10]}``;
* **tensors**: every tensor and array, under the path it has in the tree.

`unflatten` is the exact inverse. No pickle is involved and no class is looked up by name, so
reading a skeleton never runs code that came with it.
"""

from __future__ import annotations

import base64
import math
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict
from tensordict.nn import TensorDictParams

from ..base.untrusted import MalformedError, refusing, shown
from ..base.untrusted.array_file import check_shape, plain_dtype
from ..base.untrusted.read_torch import DTYPES, set_attributes
from ..errors import CheckpointError

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
        return _decode(skeleton, tensors)


# -- The dtype, shape and bytes of a tensor.

_SPEC = re.compile(r"(\w+)\[((?:\d{1,19}(?:, \d{1,19})*)?)\]", re.ASCII)


class TensorSpec(NamedTuple):
    """The specification of a tensor in a file: its dtype and shape."""

    dtype: torch.dtype
    shape: Sequence[int]

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        """Return the spec of a tensor."""
        return cls(tensor.dtype, tensor.shape)

    def __str__(self) -> str:
        """The spec as text, such as ``float32[3, 4]``."""
        return f"{str(self.dtype)[6:]}{list(self.shape)}"

    @classmethod
    def parse(cls, text: str) -> TensorSpec:
        """Return the spec that was made text.

        Raises:
            MalformedError: If it is no such text, or no tensor has such a shape.
            CheckpointError: If this version of torch has no such dtype.
        """
        match = _SPEC.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise MalformedError(f"{shown(text)} describes no tensor")
        spec = cls(_dtype(match[1]), tuple(map(int, match[2].split(", "))) if match[2] else ())
        check_shape(spec.shape, spec.dtype.itemsize)
        return spec


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise CheckpointError(f"torch {torch.__version__} has no dtype {shown(name)}.")
    return DTYPES[name]


def byte_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements as uint8 ``[nbytes]`` on the CPU, without a copy if possible."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    # An empty array of NumPy has strides of 0, which cannot be viewed.
    return flat.view(torch.uint8) if len(flat) else torch.empty(0, dtype=torch.uint8)


def memory(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a uint8 tensor from `byte_view`, writable."""
    return tensor.numpy().data


def blank(specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
    """Tensors to be filled; the system gives no memory for them until they are."""
    return {name: torch.empty(spec.shape, dtype=spec.dtype) for name, spec in specs.items()}


# -- From a tree to its parts.


@dataclass
class _Encoder:
    """Turns one tree into JSON; `tensors` collects its tensors, in the order of the tree."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    _names: dict[tuple[Any, ...], str] = field(default_factory=dict)  # by what makes views equal

    def node(self, value: Any, path: str) -> Json:
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        # JSON readers are only good for 64 bits and finite numbers; repr() round-trips floats.
        if (kind is int and -(2**63) <= value < 2**63) or (kind is float and value - value == 0):
            return value
        under = f"{path}/" if path else ""  # what is in it is at modules/policy/0.weight
        if kind is list:
            return [self.node(item, f"{under}{index}") for index, item in enumerate(value)]
        if kind is dict:
            if all(type(key) is str and key[:1] != "$" for key in value):
                return {key: self.node(item, f"{under}{key}") for key, item in value.items()}
            places = [f"{under}{key if type(key) is str else repr(key)}" for key in value]
            pairs = zip(value.items(), places, strict=True)
            return {"$dict": [[[self.node(part, place) for part in pair] for pair, place in pairs]]}
        if isinstance(value, torch.Tensor):
            return {"$tensor": self._tensor(value, path)}
        tag = "numpy" if isinstance(value, np.generic) else _TAGS.get(kind, "")
        if tag in ("numpy", "ndarray") and (value.dtype.hasobject or value.dtype.names):
            raise _cannot_save(path, f"a NumPy value of dtype {value.dtype}")
        if tag:
            parts = _TYPES[tag].parts(value)
        elif is_segment_tree(value):
            tag, parts = "SegmentTree", (segment_leaves(value), kind.__name__)
        else:
            raise _cannot_save(path, f"a {kind.__module__}.{kind.__qualname__}")
        # The path of a value is that of its first part: td/x, not td/0/x.
        nodes = [
            self.node(part, f"{under}.{place}" if place else path)
            for place, part in enumerate(parts)
        ]
        return {f"${tag}": nodes}

    def _tensor(self, tensor: torch.Tensor, path: str) -> list[Json]:
        """Collect a tensor; return its name, and its device if that is not the CPU."""
        device = tensor.device
        wraps_others = type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
        is_plain = tensor.layout is torch.strided and not tensor.is_quantized
        if not is_plain or wraps_others or device.type == "meta":
            raise _cannot_save(path, f"a {tensor.layout} {type(tensor).__name__} on {device}")
        if type(tensor) is not torch.Tensor or tensor.requires_grad:
            tensor = tensor.detach().as_subclass(torch.Tensor)
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        view = tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), device
        name = self._names.get(view)
        if name is None:
            name, count = path, 1
            while name in self.tensors:  # the keys 1 and "1", or "a/b" and "a" → "b"
                count += 1
                name = f"{path}~{count}"
            self.tensors[name] = tensor
            if tensor.numel():
                self._names[view] = name
        return [name] if device.type == "cpu" else [name, str(device)]


def _cannot_save(path: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path or 'the state'}: {what} cannot be saved in a checkpoint. Return tensors, NumPy "
        "arrays, TensorDicts, numbers, strings, or plain dicts, lists and tuples of them from "
        "state_dict(); of another object its .state_dict(), .get_state() or .value."
    )


# -- From its parts to a tree.


def _decode(node: Json, tensors: Mapping[str, torch.Tensor]) -> Any:
    if type(node) is list:
        return [_decode(item, tensors) for item in node]
    if type(node) is not dict:
        return node
    tag = next(iter(node), "")
    if not tag.startswith("$"):
        return {key: _decode(item, tensors) for key, item in node.items()}
    if tag == "$tensor":
        return _stored_tensor(tensors, *node[tag])
    known = _TYPES.get(tag[1:])
    if known is None:
        raise CheckpointError(
            f"The state holds a value of type {shown(tag[1:])}, unknown to this version of "
            "hooktrainer. It was written by a newer one: update hooktrainer to load it."
        )
    first, *others = node[tag]  # only the first part, and attributes, may be more than JSON
    if known.of_list and type(first) is not list:
        raise MalformedError(f"{shown(first)} is no list of the parts of a {tag[1:]}")
    if tag == "$OrderedDict":
        others = _decode(others, tensors)
    return known.build(_decode(first, tensors), *others)


def _stored_tensor(
    tensors: Mapping[str, torch.Tensor], name: str, device: str = "cpu"
) -> torch.Tensor:
    if name not in tensors:
        raise CheckpointError(f"The state has no tensor {shown(name)}: it is incomplete.")
    return tensors[name] if device == "cpu" else tensors[name].to(_here(device))


def _here(device: str | None) -> torch.device | None:
    """The device, or the CPU where this machine has no such device."""
    if device is None:
        return None
    wanted = torch.device(device)
    module = getattr(torch, wanted.type, None)
    present = module.device_count() if module is not None and module.is_available() else 0
    return wanted if (wanted.index or 0) < present else torch.device("cpu")


# -- The types that there are. None of the functions runs foreign code.


def _array_parts(value: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    flat = np.asarray(value).reshape(-1)
    if not (flat.flags.c_contiguous and flat.flags.writeable):
        flat = flat.copy()
    return torch.from_numpy(flat.view(np.uint8)), value.dtype.str, list(value.shape)


def _array(data: torch.Tensor, dtype: str, shape: list[int]) -> np.ndarray[Any, Any]:
    kind = plain_dtype(dtype)
    check_shape(shape, kind.itemsize)
    if data.dtype != torch.uint8 or math.prod(shape) * kind.itemsize != data.numel():
        raise MalformedError(f"{kind}{shape} is not of the {data.nbytes} bytes of its array")
    return np.ndarray(shape, kind, buffer=data.contiguous().numpy())


def _numpy_scalar(data: str, dtype: str) -> Any:
    content, kind = bytes.fromhex(data), plain_dtype(dtype)
    if len(content) < kind.itemsize:  # an empty text has more
        raise MalformedError(f"{len(content)} bytes are no {kind}")
    if kind.kind == "S":  # from an array it would come without its last zeros
        return np.bytes_(content)
    return np.ndarray((), kind, buffer=content)[()]


def _dict(pairs: list[Any]) -> dict[Any, Any]:
    # A small range, or a tensor, in place of a pair would be made a large list.
    if any(type(pair) is not list for pair in pairs):
        raise MalformedError("a dict is not made of pairs")
    return dict(pairs)


def _ordered_dict(content: dict[Any, Any], attributes: dict[str, Any]) -> OrderedDict[Any, Any]:
    if type(content) is not dict or type(attributes) is not dict:
        raise MalformedError("an OrderedDict is not made of two dicts")
    result = OrderedDict(content)
    set_attributes(result, attributes)  # nn.Module's _metadata
    return result


def _tensordict_parts(value: Any) -> tuple[Any, ...]:
    about = {
        "batch_size": list(value.batch_size),
        "device": _device_name(value),
        "names": _names(value),
        "locked": type(value) is TensorDict and value.is_locked,
    }
    return dict(value.items()), about


def _tensordict(content: dict[Any, Any], about: dict[str, Any]) -> TensorDict:
    size, names = about["batch_size"], about["names"]
    made = TensorDict(content, batch_size=size, device=_here(about["device"]), names=names)
    return made.lock_() if about["locked"] else made


def _lazy_stack(items: list[Any], stack_dim: int, names: list[str | None] | None) -> Any:
    stack = LazyStackedTensorDict.lazy_stack(items, stack_dim)
    if names is not None:
        stack.names = names
    return stack


def _names(value: Any) -> list[str | None] | None:
    return list(value.names) if any(value.names) else None


def _device_name(value: Any) -> str | None:
    return None if value.device is None else str(value.device)


# The priorities in a prioritized sampler of TorchRL are C++ trees, saved as their leaves. The sums
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


def segment_tree(leaves: torch.Tensor, kind: str) -> Any:
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


class _Type(NamedTuple):
    """A type of values that JSON lacks."""

    types: tuple[type, ...]
    parts: Callable[[Any], tuple[Any, ...]]
    build: Callable[..., Any]
    of_list: bool = False
    """Whether its first part is a list: a small range in its place would become a large tuple."""


def _items(
    kind: type,
    items: Callable[[Any], list[Any]] = list,
    build: Callable[[list[Any]], Any] | None = None,
) -> _Type:
    """A type that is made of a list."""
    return _Type((kind,), lambda value: (items(value),), build or kind, of_list=True)


def _in_order(value: set[Any]) -> list[Any]:
    return sorted(value, key=repr)  # that of a set of strings differs from process to process


def _ends(value: Any) -> list[Any]:
    return [value.start, value.stop, value.step]


def _base64(value: bytes) -> tuple[str]:
    return (base64.b64encode(value).decode(),)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_TYPES = {
    # Python refuses to parse very long decimals.
    "int": _Type((int,), lambda value: (hex(value),), lambda digits: int(digits, 16)),
    "float": _Type((float,), lambda value: (repr(value),), float),
    "complex": _items(complex, lambda value: [value.real, value.imag], lambda x: complex(*x)),
    "bytes": _Type((bytes,), _base64, _bytes),
    "bytearray": _Type((bytearray,), _base64, lambda text: bytearray(_bytes(text))),
    "tuple": _items(tuple),
    "set": _items(set, _in_order),
    "frozenset": _items(frozenset, _in_order),
    "range": _items(range, _ends, lambda ends: range(*ends)),
    "slice": _items(slice, _ends, lambda ends: slice(*ends)),
    "deque": _Type((deque,), lambda value: (list(value), value.maxlen), deque, of_list=True),
    "dict": _Type((), tuple, _dict, of_list=True),
    "OrderedDict": _Type((OrderedDict,), lambda value: (dict(value), vars(value)), _ordered_dict),
    "Path": _Type((type(Path()),), lambda value: (str(value),), Path),
    "ndarray": _Type((np.ndarray, np.memmap), _array_parts, _array),
    "numpy": _Type((), lambda value: (value.tobytes().hex(), value.dtype.str), _numpy_scalar),
    "dtype": _Type((torch.dtype,), lambda value: (str(value).removeprefix("torch."),), _dtype),
    "device": _Type((torch.device,), lambda value: (str(value),), torch.device),
    "Size": _items(torch.Size),
    "TensorDict": _Type((TensorDict, TensorDictParams), _tensordict_parts, _tensordict),
    "LazyStackedTensorDict": _Type(
        (LazyStackedTensorDict, NonTensorStack),
        lambda value: (list(value.tensordicts), value.stack_dim, _names(value)),
        _lazy_stack,
        of_list=True,
    ),
    "NonTensorData": _Type(
        (NonTensorData,),
        lambda value: (value.data, list(value.batch_size), _device_name(value)),
        lambda data, size, device: NonTensorData(data=data, batch_size=size, device=_here(device)),
    ),
    "SegmentTree": _Type((), tuple, segment_tree),
}
_TAGS = {kind: tag for tag, known in _TYPES.items() for kind in known.types}
