"""Reading the files of `torch.save` without `torch.load`.

`torch.load` trusts the file, even with ``weights_only=True``: it unpacks compressed records of any
size, creates a `bytearray` of any size, and in some versions a tensor larger than its storage. Such
a file is a zip archive of uncompressed records: a pickle of a tree, and one record per storage.
Here the unpickler cannot call anything but functions in a table, and every storage is compared with
its record, and every tensor with its storage, before memory is allocated.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, ClassVar

import torch

from .archive import stored_entries
from .array_file import check_shape
from .files import MAX_STRUCTURE, check_room, open_file
from .text import MalformedError, refusing, shown

_BLOCK = 1 << 20
_OTHER = "it holds more than plain data and tensors"

_OF_TORCHRL = (
    ", the priorities of a replay buffer: load it with TorchRL's trainer, and save it there with "
    "checkpoint=Checkpoint(...), which writes them as tensors"
)

Storage = tuple[torch.UntypedStorage, torch.dtype]


def read_torch(source: Path | bytes, root: Path | None = None, device: str = "cpu") -> Any:
    """Read a file of `torch.save` with plain data and tensors.

    Args:
        source: The file, or its content.
        root: The directory that the file belongs to.
        device: ``"meta"`` for all checks, and tensors that take no memory.

    Raises:
        MalformedError: If it is damaged, or holds more than plain data and tensors.
        OSError: From the file system.
    """
    file: IO[bytes] = io.BytesIO(source) if isinstance(source, bytes) else open_file(source, root)
    with file, refusing("the file"), zipfile.ZipFile(file) as archive:
        entries = stored_entries(archive)
        if (wrong := archive.testzip()) is not None:
            raise MalformedError(f"the record {wrong!r:.80} is not what was written")
        records = {entry.filename.partition("/")[2]: entry for entry in entries}
        if "byteorder" in records and archive.read(records["byteorder"]) != b"little":
            raise MalformedError("its numbers have another byte order")
        if "data.pkl" not in records or records["data.pkl"].file_size > MAX_STRUCTURE:
            raise MalformedError("it has no data.pkl, or one of more bytes than can be")
        if device == "cpu":
            check_room(file.seek(0, io.SEEK_END), "its tensors")
        storages: dict[str, torch.UntypedStorage] = {}

        def storage(dtype: torch.dtype, key: object, count: int) -> Storage:
            record = records.get(f"data/{key}") if isinstance(key, str) else None
            nbytes, found = count * dtype.itemsize, record and record.file_size
            if record is None or found != nbytes:
                raise MalformedError(f"a storage is to have {nbytes} bytes, and has {found}")
            if record.filename not in storages:
                memory = torch.empty(nbytes, dtype=torch.uint8, device=device)
                if device == "cpu":
                    with archive.open(record) as opened:
                        _fill(memory.numpy().data, opened)
                storages[record.filename] = memory.untyped_storage()
            return storages[record.filename], dtype

        return _load(archive.read(records["data.pkl"]), storage)


def _fill(memory: memoryview, file: IO[bytes]) -> None:
    for start in range(0, len(memory), _BLOCK):
        piece = file.read(_BLOCK)
        memory[start : start + len(piece)] = piece


def read_pickle(data: bytes) -> Any:
    """Return the content of a pickle of plain data and tensors, as TensorDict writes them."""
    with refusing("the pickle"):
        return _load(data, _no_storage)


def _load(data: bytes, storage: Callable[..., Any]) -> Any:
    tree = _Unpickler(io.BytesIO(data), storage, limit := 1000 + 10 * len(data)).load()
    todo = [tree]
    while todo:  # a small pickle may repeat a node so often that visiting all never ends
        node = todo.pop()
        if isinstance(node, dict):
            node = [*node.keys(), *node.values(), *getattr(node, "__dict__", {}).values()]
        if isinstance(node, (list, tuple, set)):
            limit -= 1 + len(node)
            if limit < 0:
                raise MalformedError("it refers to its parts over and over")
            todo += node
    return tree


DTYPES = {str(x)[6:]: x for x in vars(torch).values() if isinstance(x, torch.dtype)}
"""Every dtype of this version of torch by name."""
_STORAGES = {
    **{f"{name}Storage": dtype for name, dtype in {
        "Double": torch.float64, "Float": torch.float32, "Half": torch.float16,
        "BFloat16": torch.bfloat16, "Long": torch.int64, "Int": torch.int32, "Short": torch.int16,
        "Char": torch.int8, "Byte": torch.uint8, "Bool": torch.bool,
        "ComplexDouble": torch.complex128, "ComplexFloat": torch.complex64,
    }.items()},
    "UntypedStorage": torch.uint8,
}  # fmt: skip
_INSTRUCTIONS = (
    *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET"),
    *("LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE"),
    *("TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "NONE", "NEWTRUE", "NEWFALSE", "BININT"),
    *("BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"),
    *("BINBYTES", "SHORT_BINBYTES", "BINPERSID"),
)


_COPIED = (str, bytes, list, tuple, set, dict)


class _Instructions(dict[int, Callable[[Any], None]]):
    """Handlers by instruction byte."""

    def __missing__(self, code: int) -> Any:
        raise MalformedError(f"{_OTHER}: the pickle instruction {code}")


class _Unpickler(pickle._Unpickler):
    """Python's unpickler, with only the instructions for plain data and tensors.

    Args:
        file: The pickle.
        storage: Returns a storage from its entry in the pickle: dtype, key, number of elements.
        limit: How much calls may copy, since their arguments may be shared with other calls.
    """

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, file: IO[bytes], storage: Callable[..., Any], limit: int) -> None:
        super().__init__(file)
        self._storage = storage
        self._left = limit

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _STORAGES[name]
        found = _BUILDERS.get(f"{module.replace('__builtin__', 'builtins')}.{name}")
        if found is None:
            hint = _OF_TORCHRL if module == "torchrl._torchrl" else ""
            raise MalformedError(f"{_OTHER}: {module}.{name}{hint}")
        return found

    def persistent_load(self, pid: Any) -> Any:
        if type(pid) is not tuple:
            raise MalformedError("it refers to what is not a storage")
        kind, dtype, key, _, count, *view = pid
        is_storage = kind == "storage" and type(dtype) is torch.dtype and view in ([], [None])
        if not is_storage or type(count) is not int:
            raise MalformedError("it refers to what is not a storage")
        return self._storage(dtype, key, count)

    def load_reduce(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        if type(args) is not tuple:
            raise MalformedError(_OTHER)
        # Whatever took a tensor's elements one by one would make a tensor of each.
        if function is not _parameter and any(isinstance(arg, torch.Tensor) for arg in args):
            raise MalformedError(_OTHER)
        self._left -= sum(len(arg) for arg in args if isinstance(arg, _COPIED))
        if self._left < 0:
            raise MalformedError("it refers to its parts over and over")
        self.stack.append(function(*args))

    def load_build(self) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) is not OrderedDict or type(state) is not dict:
            raise MalformedError(_OTHER)
        set_attributes(self.stack[-1], state)

    # Of dicts only: a tensor's would be computed, for indices that are broadcast to any size.
    def load_setitems(self) -> None:
        self._set_items(self.pop_mark())

    def load_setitem(self) -> None:
        self._set_items([self.stack.pop(-2), self.stack.pop()])

    def _set_items(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise MalformedError(_OTHER)
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    dispatch: ClassVar[Any] = _Instructions(
        {
            getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]]
            for name in _INSTRUCTIONS
        }
        | {pickle.REDUCE[0]: load_reduce, pickle.BUILD[0]: load_build}
        | {pickle.SETITEMS[0]: load_setitems, pickle.SETITEM[0]: load_setitem}
    )


def set_attributes(mapping: OrderedDict[Any, Any], attributes: Mapping[str, Any]) -> None:
    """Set attributes of an `OrderedDict`, such as the ``_metadata`` of a module's state."""
    for name in attributes:
        if not isinstance(name, str) or hasattr(OrderedDict, name):
            raise MalformedError(f"{shown(name)} is no attribute of a dict")
    vars(mapping).update(attributes)


def _tensor(
    storage: Storage,
    offset: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool = False,
    hooks: Any = None,
    dtype: torch.dtype | None = None,
    metadata: Any = None,
) -> torch.Tensor:
    memory, stored = storage
    dtype = dtype or stored
    if type(memory) is not torch.UntypedStorage or type(dtype) is not torch.dtype or hooks:
        raise MalformedError("it holds a tensor of an unknown kind")
    check_shape(shape, dtype.itemsize)
    check_shape(stride)
    if type(offset) is not int or offset < 0 or len(shape) != len(stride) or metadata:
        raise MalformedError("a tensor begins outside of its storage")
    last, count = offset, 1
    for size, step in zip(shape, stride, strict=True):
        last += (size - 1) * step
        count *= size
    if count and (last + 1) * dtype.itemsize > memory.nbytes():
        raise MalformedError(f"a tensor {list(shape)} is larger than its storage")
    if count * dtype.itemsize > memory.nbytes():
        raise MalformedError(f"a tensor {list(shape)} repeats its memory")
    tensor = torch.empty(shape if not count else 0, dtype=dtype, device=memory.device)
    if count:
        tensor.set_(memory, offset, shape, stride)
    return tensor.requires_grad_(requires_grad is True)


def _parameter(data: torch.Tensor, requires_grad: bool, hooks: Any) -> torch.nn.Parameter:
    if type(data) is not torch.Tensor or hooks:
        raise MalformedError("it holds a parameter of an unknown kind")
    return torch.nn.Parameter(data, requires_grad is True)


def _bytes(text: str = "", codec: str = "latin1") -> bytes:
    if type(text) is not str or codec not in ("latin1", "latin-1"):
        raise MalformedError("it holds bytes in an unknown code")
    return text.encode("latin1")


def _bytearray(data: bytes | str = b"", codec: str = "latin-1") -> bytearray:
    return bytearray(data if type(data) is bytes else _bytes(data, codec))  # type: ignore[arg-type]


def _size(sizes: tuple[int, ...]) -> torch.Size:
    check_shape(sizes)
    return torch.Size(sizes)


def _storage_in_bytes(data: bytes) -> Storage:
    """Read a storage in the old format of `torch.save`: five pickles, a count and the numbers."""
    if type(data) is not bytes:
        raise MalformedError("it holds a storage of an unknown kind")
    file = io.BytesIO(data)
    # In none of them is anything called.
    parts = [_Unpickler(file, lambda *described: described, limit=-1).load() for _ in range(5)]
    _, _, system, (dtype, _, count), _ = parts
    if system.get("little_endian") is not True:
        raise MalformedError("its numbers have another byte order")
    (stored,) = struct.unpack("<q", file.read(8))
    content = bytearray(file.read())
    if stored != count or len(content) != count * dtype.itemsize:
        raise MalformedError(
            f"a storage of {count} numbers claims {stored} and has {len(content)} bytes"
        )
    memory = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0)
    return memory.untyped_storage(), dtype


def _no_storage(*_: object) -> Any:
    raise MalformedError("it refers to what is not in it")


# None of these takes more memory than its arguments have, or calls them.
_BUILDERS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch.storage._load_from_bytes": _storage_in_bytes,
    "torch.Size": _size,
    "torch.device": torch.device,
    "collections.OrderedDict": lambda: OrderedDict(),  # its items follow
    "collections.Counter": Counter,
    "_codecs.encode": _bytes,
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytearray,
    "builtins.set": set,
    "builtins.complex": complex,
}
