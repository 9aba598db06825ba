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
        return _decode(skeleton, tensors)


def blank(specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
    """Tensors of zeros, to try out a skeleton: the system gives no memory for them until used."""
    return {
        # An empty array has strides of 0, which cannot be viewed.
        name: torch.from_numpy(np.zeros(spec.nbytes, np.uint8)).view(spec.dtype).reshape(spec.shape)
        if spec.nbytes
        else torch.empty(spec.shape, dtype=spec.dtype)
        for name, spec in specs.items()
    }


class _Encoder:
    """Turns one tree into JSON; `tensors` collects its tensors, in the order of the tree."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[tuple[Any, ...], str] = {}  # by what makes two views one tensor

    def node(self, value: Any, path: str) -> Json:
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        # JSON readers are only good for 64 bits and finite numbers; repr() round-trips floats.
        if (kind is int and -(2**63) <= value < 2**63) or (kind is float and value - value == 0):
            return value
        if kind is list:
            return self._items(value, path)
        if kind is dict:
            if all(type(key) is str and not key.startswith("$") for key in value):
                return {key: self.node(item, _join(path, key)) for key, item in value.items()}
            places = [_join(path, key) for key in value]
            pairs = zip(value.items(), places, strict=True)
            return {"$dict": [[[self.node(part, place) for part in pair] for pair, place in pairs]]}
        if isinstance(value, torch.Tensor):
            return {"$tensor": self._tensor(value, path)}
        tag, parts = _parts_of(value, path)
        # The path of a value is that of its first part: td/x, not td/0/x.
        paths = (path if place == 0 else _join(path, f".{place}") for place in range(len(parts)))
        return {f"${tag}": [self.node(*part) for part in zip(parts, paths, strict=True)]}

    def _items(self, values: Iterable[Any], path: str) -> list[Json]:
        return [self.node(value, _join(path, index)) for index, value in enumerate(values)]

    def _tensor(self, tensor: torch.Tensor, path: str) -> list[Json]:
        """Collect a tensor; return its name, and its device if that is not the CPU."""
        device = tensor.device
        wraps_others = type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
        is_plain = tensor.layout is torch.strided and not tensor.is_quantized
        if not is_plain or wraps_others or device.type == "meta":
            raise _cannot_save(
                tensor, path, f"a {tensor.layout} {type(tensor).__name__} on {device}"
            )
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


def _join(path: str, key: Any) -> str:
    """Return the path of what stands at ``key`` under ``path``: ``modules/policy/0.weight``."""
    step = key if type(key) is str else repr(key)
    return f"{path}/{step}" if path else step


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
    if tag not in _BUILDERS:
        raise CheckpointError(
            f"The state holds a value of type {shown(tag[1:])}, unknown to this version of "
            "hooktrainer. It was written by a newer one: update hooktrainer to load it."
        )
    first, *others = node[tag]  # only the first part, and attributes, may be more than JSON
    if tag in _LISTS and type(first) is not list:
        raise MalformedError(f"{shown(first)} is no list of the parts of a {tag[1:]}")
    if tag == "$OrderedDict":
        others = _decode(others, tensors)
    return _BUILDERS[tag](_decode(first, tensors), *others)


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


def _parts_of(value: Any, path: str) -> tuple[str, tuple[Any, ...]]:
    """Return the name of a value's type, and the parts that rebuild it."""
    kind = type(value)
    if is_segment_tree(value):
        return "SegmentTree", (segment_leaves(value), kind.__name__)
    if isinstance(value, np.generic) and not (value.dtype.hasobject or value.dtype.names):
        return "numpy", (value.tobytes().hex(), value.dtype.str)
    known = _PARTS.get(np.ndarray if kind is np.memmap else kind)
    if known is None:
        raise _cannot_save(value, path)
    if isinstance(value, np.ndarray) and (value.dtype.hasobject or value.dtype.names):
        raise _cannot_save(value, path, f"a NumPy array of dtype {value.dtype}")
    tag, parts = known
    return tag, parts(value)


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


# -- Types whose parts take more than a line.


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


def _ordered_dict(content: dict[Any, Any], attributes: dict[str, Any]) -> OrderedDict[Any, Any]:
    result = OrderedDict(content)
    set_attributes(result, attributes)  # nn.Module's _metadata
    return result


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise CheckpointError(
            f"This version of torch ({torch.__version__}) has no dtype {shown(name)}."
        )
    return DTYPES[name]


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


def _lazy_stack_parts(value: Any) -> tuple[Any, ...]:
    return list(value.tensordicts), value.stack_dim, _names(value)


def _lazy_stack(items: list[Any], stack_dim: int, names: list[str | None] | None) -> Any:
    stack = LazyStackedTensorDict.lazy_stack(items, stack_dim)
    if names is not None:
        stack.names = names
    return stack


def _names(value: Any) -> list[str | None] | None:
    return list(value.names) if any(value.names) else None


def _device_name(value: Any) -> str | None:
    return None if value.device is None else str(value.device)


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


# -- The types that there are, with the parts of a value, and what makes a value of its parts. None
# of the functions runs foreign code.

_PARTS: dict[type, tuple[str, Callable[[Any], tuple[Any, ...]]]] = {
    int: ("int", lambda value: (hex(value),)),  # Python refuses to parse very long decimals
    float: ("float", lambda value: (repr(value),)),
    complex: ("complex", lambda value: ([value.real, value.imag],)),
    bytes: ("bytes", lambda value: (base64.b64encode(value).decode(),)),
    bytearray: ("bytearray", lambda value: (base64.b64encode(value).decode(),)),
    tuple: ("tuple", lambda value: (list(value),)),
    # Sorted, because the order of a set of strings differs from process to process.
    set: ("set", lambda value: (sorted(value, key=repr),)),
    frozenset: ("frozenset", lambda value: (sorted(value, key=repr),)),
    range: ("range", lambda value: ([value.start, value.stop, value.step],)),
    slice: ("slice", lambda value: ([value.start, value.stop, value.step],)),
    deque: ("deque", lambda value: (list(value), value.maxlen)),
    OrderedDict: ("OrderedDict", lambda value: (dict(value), vars(value))),
    type(Path()): ("Path", lambda value: (str(value),)),
    np.ndarray: ("ndarray", _array_parts),
    torch.dtype: ("dtype", lambda value: (str(value).removeprefix("torch."),)),
    torch.device: ("device", lambda value: (str(value),)),
    torch.Size: ("Size", lambda value: (list(value),)),
    TensorDict: ("TensorDict", _tensordict_parts),
    TensorDictParams: ("TensorDict", _tensordict_parts),
    LazyStackedTensorDict: ("LazyStackedTensorDict", _lazy_stack_parts),
    NonTensorStack: ("LazyStackedTensorDict", _lazy_stack_parts),
    NonTensorData: (
        "NonTensorData",
        lambda value: (value.data, list(value.batch_size), _device_name(value)),
    ),
}
_BUILDERS: dict[str, Callable[..., Any]] = {
    "$int": lambda digits: int(digits, 16),
    "$float": float,
    "$complex": lambda parts: complex(*parts),
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$bytearray": lambda text: bytearray(base64.b64decode(text, validate=True)),
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$range": lambda parts: range(*parts),
    "$slice": lambda parts: slice(*parts),
    "$deque": deque,
    "$dict": dict,
    "$OrderedDict": _ordered_dict,
    "$Path": Path,
    "$ndarray": _array,
    "$numpy": _numpy_scalar,
    "$dtype": _dtype,
    "$device": torch.device,
    "$Size": torch.Size,
    "$TensorDict": _tensordict,
    "$LazyStackedTensorDict": _lazy_stack,
    "$NonTensorData": lambda data, size, device: NonTensorData(
        data=data, batch_size=size, device=_here(device)
    ),
    "$SegmentTree": segment_tree,
}
_LISTS = (
    *("$complex", "$tuple", "$set", "$frozenset", "$range", "$slice", "$deque", "$dict", "$Size"),
)
"""Those whose first part is a list. A small range in its place would become a large tuple."""
