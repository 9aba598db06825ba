"""The files of `torch.save`, read without `torch.load`.

`torch.load` believes what a file says, with ``weights_only=True`` too: it unpacks compressed
records however large they become, makes a `bytearray` of any size, and in some versions a tensor
larger than its storage, of whatever memory lies behind. Such a file is a zip archive of
uncompressed records: a pickle that describes a tree, and one record for each storage. Here the
pickle is read by a machine that can call nothing: what it names is looked up in a table. Every
tensor is compared with its storage, and every storage with its record, before any memory is taken.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from .files import MAX_STRUCTURE, open_file
from .memory import check_room
from .text import MalformedError, places_in_file, refusing
from .torch_pickle import StoredTensor, read_tree

__all__ = ["StoredTensor", "TorchFile", "read_torch"]

_BLOCK = 1 << 20
_LOCAL_HEADER = struct.Struct("<4s22xHH")


class TorchFile:
    """An open file of `torch.save`, whose tensors are described and not read yet.

    Args:
        source: The file, or its content.
        root: The directory that the file belongs to.

    Attributes:
        content: The tree in it, with a `StoredTensor` for each tensor.

    Raises:
        MalformedError: If it is damaged, or holds more than plain data and tensors.
        OSError: As the file system gives it.
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
                self.content: Any = read_tree(
                    self._pickle, {n: r[1] for n, r in self._data.items()}
                )
        except BaseException:
            self._file.close()
            raise

    def check(self) -> None:
        """Compare every storage with its CRC-32.

        Raises:
            MalformedError: If one is damaged.
        """
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
        """Return the tree with its tensors, on the CPU; they share memory as they did.

        Raises:
            MalformedError: If a record is damaged, or there is no memory for them.
        """
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
        """Where each record lies: its start, size and CRC-32, by its name in the archive."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._file.close()


def read_torch(source: Path | bytes, root: Path | None = None) -> Any:
    """Return what `torch.save` wrote, if that is plain data and tensors; see `TorchFile`."""
    with TorchFile(source, root) as file:
        return file.load()


class _Builder:
    """Makes a tree with tensors of one that describes them.

    What occurs in several places is copied to each, but for tensors; so there is a limit to it.
    """

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
