"""Reading the files of `torch.save` without `torch.load`.

`torch.load` trusts the file, even with ``weights_only=True``: it unpacks compressed records of any
size, creates a `bytearray` of any size, and in some versions a tensor larger than its storage. Such
a file is a zip archive of uncompressed records: a pickle of a tree, and one record per storage.
Here the unpickler cannot call anything but functions in a table, and every tensor is compared with
its storage, and every storage with its record, before memory is allocated.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch

from .array_file import check_shape
from .files import MAX_STRUCTURE, check_room, open_file
from .text import MalformedError, one_line, places_in_file, refusing, shown

__all__ = ["StoredTensor", "TorchFile", "read_torch"]
_BLOCK = 1 << 20
_LOCAL_HEADER = struct.Struct("<4s22xHH")


class TorchFile:
    """An open file of `torch.save`, with tensors that are described but not read.

    Args:
        source: The file, or its content.
        root: The directory that the file belongs to.

    Attributes:
        content: The tree, with a `StoredTensor` for each tensor.

    Raises:
        MalformedError: If it is damaged, or holds more than plain data and tensors.
        OSError: From the file system.
    """

    def __init__(self, source: Path | bytes, root: Path | None = None) -> None:
        self._file: io.BytesIO | io.FileIO
        if isinstance(source, bytes):
            self._file, self._size = io.BytesIO(source), len(source)
        else:
            opened = open_file(source, root)
            self._file, self._size = opened, os.fstat(opened.fileno()).st_size
        try:
            with refusing("the file"), places_in_file():
                self._records = self._list_records()
                order = self._records.get("byteorder")
                if order is not None and self._read(order).tobytes() != b"little":
                    raise MalformedError("its numbers have another byte order")
                pickle = self._records.get("data.pkl")
                if pickle is None or pickle[1] > MAX_STRUCTURE:
                    raise MalformedError("it has no data.pkl, or one of more bytes than can be")
                self._data = {n[5:]: r for n, r in self._records.items() if n.startswith("data/")}
                self._pickle = self._read(pickle).tobytes()
                sizes = {name: record[1] for name, record in self._data.items()}
                self.content: Any = _Machine(self._pickle, sizes).load()
        except BaseException:
            self._file.close()
            raise

    def check(self) -> None:
        """Compare every storage with its CRC-32."""
        with refusing("the file"), places_in_file():
            buffer = memoryview(bytearray(_BLOCK))
            for start, size, crc in self._data.values():
                self._file.seek(start)
                found, left = 0, size
                while left and (count := self._file.readinto(buffer[:left])):
                    found, left = zlib.crc32(buffer[:count], found), left - count
                if left or found != crc:
                    raise MalformedError("a record is not what was written")

    def load(self) -> Any:
        """Return the tree with its tensors on the CPU; shared memory stays shared."""
        with refusing("the file"), places_in_file():
            check_room(self._size, "its tensors")
            return _Builder(self._storage, 1000 + 10 * len(self._pickle)).build(self.content)

    def _storage(self, key: str) -> torch.UntypedStorage:
        record = self._data[key]
        buffer = torch.empty(record[1], dtype=torch.uint8)
        self._read_into(record, buffer.numpy().data)
        return buffer.untyped_storage()

    def _read(self, record: tuple[int, int, int]) -> memoryview:
        data = memoryview(bytearray(record[1]))
        self._read_into(record, data)
        return data

    def _read_into(self, record: tuple[int, int, int], data: memoryview) -> None:
        start, size, crc = record
        self._file.seek(start)
        done = 0
        while done < size and (count := self._file.readinto(data[done:])):
            done += count
        if done < size or zlib.crc32(data) != crc:
            raise MalformedError("a record is not what was written")

    def _list_records(self) -> dict[str, tuple[int, int, int]]:
        """Return the start, size and CRC-32 of each record by name."""
        found: dict[str, tuple[int, int, int]] = {}
        places = []
        with zipfile.ZipFile(self._file) as archive:
            entries = archive.infolist()
        for entry in entries:
            packed = entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1
            if packed or entry.compress_size != entry.file_size:
                raise MalformedError("it has compressed or encrypted records")
            self._file.seek(entry.header_offset)
            mark, name_length, extra_length = _LOCAL_HEADER.unpack(self._file.read(30))
            start = entry.header_offset + 30 + name_length + extra_length
            name = entry.filename.partition("/")[2]
            if mark != b"PK\3\4" or name in found or start + entry.file_size > self._size:
                raise MalformedError("its directory does not fit its records")
            found[name] = (start, entry.file_size, entry.CRC)
            places.append((entry.header_offset, start + entry.file_size))
        places.sort()
        if any(end > following for (_, end), (following, _) in pairwise(places)):
            raise MalformedError("its records overlap")
        return found

    def __enter__(self) -> TorchFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def read_torch(source: Path | bytes, root: Path | None = None) -> Any:
    """Read a file of `torch.save` with plain data and tensors; see `TorchFile`."""
    with TorchFile(source, root) as file:
        return file.load()


class _Builder:
    """Builds a tree with tensors; the number of nodes is limited, since shared nodes are copied."""

    def __init__(self, storage: Any, limit: int) -> None:
        self._read = storage
        self._left = limit
        self._storages: dict[str, torch.UntypedStorage] = {}
        self._tensors: dict[int, torch.Tensor] = {}

    def build(self, node: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise MalformedError("it refers to its parts over and over")
        kind = type(node)
        if kind is StoredTensor:
            return self._tensor(node)
        if kind in (dict, OrderedDict):
            result = kind((self.build(key), self.build(value)) for key, value in node.items())
            if kind is OrderedDict:
                vars(result).update(self.build(vars(node)))
            return result
        if kind in (list, tuple):
            return kind(self.build(item) for item in node)
        return node

    def _tensor(self, stored: StoredTensor) -> torch.Tensor:
        known = self._tensors.get(id(stored))
        if known is None:
            if stored.key not in self._storages:
                self._storages[stored.key] = self._read(stored.key)
            known = torch.empty(0, dtype=stored.dtype)
            known.set_(self._storages[stored.key], stored.offset, stored.shape, stored.stride)
            if stored.parameter:
                known = torch.nn.Parameter(known, stored.requires_grad)
            elif stored.requires_grad:
                known.requires_grad_()
            self._tensors[id(stored)] = known
        return known


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
    *("PROTO", "STOP", "MARK", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "GLOBAL"),
    *("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("APPEND", "APPENDS", "SETITEM", "SETITEMS", "NONE", "NEWTRUE", "NEWFALSE"),
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "BINPERSID"),
)


class StoredTensor(NamedTuple):
    """The checked description of a tensor; ``offset`` and ``stride`` count elements."""

    key: str
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool
    parameter: bool


class _Global(NamedTuple):
    """The name of a class or function, which is not imported."""

    module: str
    name: str


class _Storage(NamedTuple):
    key: str
    dtype: torch.dtype
    nbytes: int


class _Instructions(dict[int, Callable[[Any], None]]):
    """Handlers by instruction byte."""

    def __missing__(self, code: int) -> Any:
        raise MalformedError(
            f"it holds more than plain data and tensors: the pickle instruction {code}"
        )


class _Machine(pickle._Unpickler):
    """Python's unpickler, with only the instructions for plain data and tensors."""

    stack: list[Any]

    def __init__(self, data: bytes, records: Mapping[str, int]) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self._records = records
        self._left = 1000 + 10 * len(data)

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _STORAGES[name]
        return _Global(module, name)

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, count = pid
        if kind != "storage" or type(dtype) is not torch.dtype or type(count) is not int:
            raise MalformedError("it refers to what is not a storage")
        nbytes = count * dtype.itemsize
        if self._records.get(key) != nbytes:
            raise MalformedError(
                f"a storage is to have {nbytes} bytes, and has {self._records.get(key)}"
            )
        return _Storage(key, dtype, nbytes)

    def load_reduce(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        build = _BUILDERS.get(function) if type(function) is _Global else None
        if build is None or type(args) is not tuple:
            called = ".".join(function) if type(function) is _Global else "a call"
            raise MalformedError(f"it holds more than plain data and tensors: {one_line(called)}")
        self._left -= sum(len(arg) for arg in args if hasattr(arg, "__len__"))
        if self._left < 0:  # each call copies its arguments, which it may share with others
            raise MalformedError("it refers to its parts over and over")
        self.stack.append(build(*args))

    def load_build(self) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) is not OrderedDict or type(state) is not dict:
            raise MalformedError("it holds more than plain data and tensors")
        set_attributes(self.stack[-1], state)

    dispatch: ClassVar[Any] = _Instructions(
        {
            getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]]
            for name in _INSTRUCTIONS
        }
        | {pickle.REDUCE[0]: load_reduce, pickle.BUILD[0]: load_build}
    )


def set_attributes(mapping: OrderedDict[Any, Any], attributes: Mapping[str, Any]) -> None:
    """Set attributes of an `OrderedDict`, such as the ``_metadata`` of a module's state."""
    for name in attributes:
        if not isinstance(name, str) or hasattr(OrderedDict, name):
            raise MalformedError(f"{shown(name)} is no attribute of a dict")
    vars(mapping).update(attributes)


def _tensor(
    storage: Any,
    offset: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool = False,
    hooks: Any = None,
    dtype: torch.dtype | None = None,
    metadata: Any = None,
) -> StoredTensor:
    if type(storage) is not _Storage or hooks or metadata:
        raise MalformedError("it holds a tensor of an unknown kind")
    dtype = dtype or storage.dtype
    check_shape(shape, dtype.itemsize)
    check_shape(stride)
    if type(offset) is not int or offset < 0 or len(shape) != len(stride):
        raise MalformedError("a tensor begins outside of its storage")
    last, count = offset, 1
    for size, step in zip(shape, stride, strict=True):
        last += (size - 1) * step
        count *= size
    if count and (last + 1) * dtype.itemsize > storage.nbytes:
        raise MalformedError(f"a tensor {list(shape)} is larger than its storage")
    if count * dtype.itemsize > storage.nbytes:
        raise MalformedError(f"a tensor {list(shape)} repeats its memory")
    steps, step = list(stride), 1
    for dim in reversed(range(len(shape))):  # where nothing depends on it, as torch has it
        if shape[dim] <= 1 or not count:
            steps[dim] = step
        step *= max(shape[dim], 1)
    offset = offset if count else 0
    return StoredTensor(
        storage.key, dtype, offset, tuple(shape), tuple(steps), requires_grad is True, False
    )


def _tensor_v2(
    storage: Any, offset: int, shape: Any, stride: Any, grad: bool, hooks: Any, metadata: Any = None
) -> StoredTensor:
    return _tensor(storage, offset, shape, stride, grad, hooks, None, metadata)


def _parameter(data: Any, requires_grad: bool, hooks: Any) -> StoredTensor:
    if type(data) is not StoredTensor or hooks:
        raise MalformedError("it holds a parameter of an unknown kind")
    return data._replace(requires_grad=requires_grad is True, parameter=True)


def _bytes(text: str = "", codec: str = "latin1") -> bytes:
    if type(text) is not str or codec not in ("latin1", "latin-1"):
        raise MalformedError("it holds bytes in an unknown code")
    return text.encode("latin1")


def _bytearray(data: bytes | str = b"", codec: str = "latin-1") -> bytearray:
    return bytearray(data if type(data) is bytes else _bytes(data, codec))  # type: ignore[arg-type]


def _counter(counts: dict[Any, int]) -> Counter[Any]:
    if type(counts) is not dict or not all(type(n) is int for n in counts.values()):
        raise MalformedError("it holds a Counter of what is not numbers")
    return Counter(counts)


def _size(sizes: tuple[int, ...]) -> torch.Size:
    check_shape(sizes)
    return torch.Size(sizes)


# None of these takes more memory than its arguments have, or calls them.
_BUILDERS: dict[Any, Callable[..., Any]] = {
    _Global("torch._utils", "_rebuild_tensor_v2"): _tensor_v2,
    _Global("torch._utils", "_rebuild_tensor_v3"): _tensor,
    _Global("torch._utils", "_rebuild_parameter"): _parameter,
    _Global("collections", "OrderedDict"): OrderedDict,
    _Global("collections", "Counter"): _counter,
    _Global("torch", "Size"): _size,
    _Global("torch", "device"): torch.device,
    _Global("_codecs", "encode"): _bytes,
    **{
        _Global(module, name): build
        for module in ("__builtin__", "builtins")
        for name, build in (
            ("bytes", _bytes),
            ("bytearray", _bytearray),
            ("set", set),
            ("complex", complex),
        )
    },
}

# -- A plain pickle of nested values with tensors in it, as TensorDict writes what JSON cannot say.

_MORE = (
    *("FRAME", "MEMOIZE", "STACK_GLOBAL"),
    *("SHORT_BINUNICODE", "SHORT_BINBYTES", "BINBYTES"),
)
_LOAD_STORAGE = _Global("torch.storage", "_load_from_bytes")
_COUNT = struct.Struct("<q")


def read_pickle(data: bytes) -> Any:
    """Return the content of a pickle of plain data and tensors."""
    with refusing("the pickle"):
        machine = _Pickle(data)
        tree = machine.load()
        return _Builder(machine.storage, 1000 + 10 * len(data)).build(tree)


class _Pickle(_Machine):
    """Reads a pickle whose storages are in the old format of `torch.save`.

    A storage consists of five small pickles, a count and the numbers.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data, {})
        self._storages: list[bytes] = []

    def storage(self, key: str) -> torch.UntypedStorage:
        """Return the memory of a storage."""
        data = self._storages[int(key)]
        buffer = torch.empty(len(data), dtype=torch.uint8)
        buffer.numpy()[:] = memoryview(data)
        return buffer.untyped_storage()

    def load_reduce(self) -> None:
        if self.stack[-2] != _LOAD_STORAGE:
            super().load_reduce()
            return
        (data,), _ = self.stack.pop(), self.stack.pop()
        dtype, content = _numbers(data)
        self.stack.append(_Storage(str(len(self._storages)), dtype, len(content)))
        self._storages.append(content)

    def persistent_load(self, pid: Any) -> Any:
        raise MalformedError("it refers to what is not in it")

    dispatch: ClassVar[Any] = _Instructions(
        {
            **_Machine.dispatch,
            **{
                getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]]
                for name in _MORE
            },
            pickle.REDUCE[0]: load_reduce,
        }
    )


class _Part(_Machine):
    """Reads one of the pickles at the beginning of a storage."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(b"", {})
        self._file_read, self._file_readline = file.read, file.readline

    def persistent_load(self, pid: Any) -> Any:
        kind, dtype, _, _, count, view = pid
        if kind != "storage" or type(dtype) is not torch.dtype or view is not None:
            raise MalformedError("it refers to what is not a storage")
        return dtype, count


def _numbers(data: object) -> tuple[torch.dtype, bytes]:
    """Return the dtype and the bytes of a storage."""
    if type(data) is not bytes:
        raise MalformedError("it holds a storage of an unknown kind")
    file = io.BytesIO(data)
    _, _, system, (dtype, count), _ = (_Part(file).load() for _ in range(5))
    if system.get("little_endian") is not True:
        raise MalformedError("its numbers have another byte order")
    (stored,) = _COUNT.unpack(file.read(_COUNT.size))
    content = data[file.tell() :]
    if stored != count or len(content) != count * dtype.itemsize:
        raise MalformedError(
            f"a storage of {count} numbers says {stored} and has {len(content)} bytes"
        )
    return dtype, content
