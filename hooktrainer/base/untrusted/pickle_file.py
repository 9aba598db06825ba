"""A plain pickle of nested values with tensors in it, as TensorDict writes what JSON cannot say.

A tensor's storage is in it as the bytes of a `torch.save` in its old form: five small pickles, a
count and the numbers. As in `torch_pickle`, nothing that is named is looked up or called.
"""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any, ClassVar

import torch

from .read_torch import _Builder, _Global, _Instructions, _Machine, _Storage
from .text import MalformedError, refusing

_MORE = (
    *("FRAME", "MEMOIZE", "STACK_GLOBAL"),
    *("SHORT_BINUNICODE", "SHORT_BINBYTES", "BINBYTES"),
)
_LOAD_STORAGE = _Global("torch.storage", "_load_from_bytes")
_COUNT = struct.Struct("<q")


def read_pickle(data: bytes) -> Any:
    """Return what a pickle holds, if that is plain data and tensors.

    Raises:
        MalformedError: If it is damaged, or holds anything else.
    """
    with refusing("the pickle"):
        machine = _Pickle(data)
        tree = machine.load()
        return _Builder(machine.storage, 1000 + 10 * len(data)).build(tree)


class _Pickle(_Machine):
    """Reads the pickle; storages stay the bytes they are."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, {})
        self._storages: list[bytes] = []

    def storage(self, key: str) -> torch.UntypedStorage:
        """The memory of a tensor, by the key of its storage."""
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
    """Reads one of the pickles that a storage begins with."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(b"", {})
        self._file_read, self._file_readline = file.read, file.readline

    def persistent_load(self, pid: Any) -> Any:
        kind, dtype, _, _, count, view = pid
        if kind != "storage" or type(dtype) is not torch.dtype or view is not None:
            raise MalformedError("it refers to what is not a storage")
        return dtype, count


def _numbers(data: object) -> tuple[torch.dtype, bytes]:
    """The dtype and the bytes of a storage."""
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
