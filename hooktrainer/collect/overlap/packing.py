"""Sends trees of tensors between processes with one copy on each side.

A message is a pickle in which tensors are numbers, followed by the tensors' bytes. Large messages
go through shared memory, so that the sender need not wait for the reader; small ones are faster
through the pipe.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import cloudpickle
import numpy as np
import torch
from torch import nn

from ..buffers import SharedMemory

_SHARED_FROM = 2**17  # bytes; a pipe holds little more, and then the sender waits for the reader
_ALIGNMENT = 64
_HEAD = struct.Struct("<QQ")  # length of the pickle, bytes of shared memory


class Connection(Protocol):
    """The common interface of `Worker` and `Channel`."""

    def send(self, message: bytes) -> None:
        """Send a message."""

    def receive(self) -> bytes:
        """Wait for a message."""

    def give_file(self, descriptor: int) -> None:
        """Send an open file."""

    def take_file(self) -> int:
        """Receive an open file."""


class _Spec(NamedTuple):
    """The description of a tensor without its elements."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    device: torch.device | None
    requires_grad: bool | None  # None if it is no parameter


class _Tensors:
    """A pickler's ``persistent_id`` that collects plain tensors, each once."""

    tensors: list[torch.Tensor]
    numbers: dict[int, int]

    def persistent_id(self, thing: Any) -> int | None:
        if type(thing) not in (torch.Tensor, nn.Parameter) or thing.layout is not torch.strided:
            return None
        if thing.is_quantized or thing.is_complex():
            return None
        number = self.numbers.setdefault(id(thing), len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(thing)
        return number


class _Pickler(_Tensors, pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.tensors, self.numbers = [], {}


class _CodePickler(_Tensors, cloudpickle.Pickler):
    """Pickles lambdas, local functions and definitions of scripts as well."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors, self.numbers = [], {}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, number: Any) -> torch.Tensor:
        return self._tensors[number]


def send(connection: Connection, tree: Any) -> None:
    """Send a tree of plain data, tensors and TensorDicts."""
    _send(connection, *_split(_Pickler, tree))


def dump(tree: Any) -> bytes:
    """Serialize a tree that may hold code, for `load`."""
    head, tensors = _split(_CodePickler, tree)
    return _joined(head, tensors)


def receive(connection: Connection) -> Any:
    """Wait for a tree sent by `send`. Its tensors are writable."""
    message = connection.receive()
    length, shared = _HEAD.unpack_from(message)
    if not shared:
        return load(message)
    memory = SharedMemory(shared, connection.take_file())
    memory.close_file()
    return _put_together(
        message[_HEAD.size : _HEAD.size + length],
        lambda size: torch.from_numpy(memory.allocate((size,), np.dtype(np.uint8))),
    )


def load(message: bytes) -> Any:
    """Deserialize the result of `dump`."""
    length, _ = _HEAD.unpack_from(message)
    memory = bytearray(message)
    place = _aligned(_HEAD.size + length)

    def next_piece(size: int) -> torch.Tensor:
        nonlocal place
        # Disjoint pieces: writing to one tensor does not change another.
        piece = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=place)
        place += _aligned(size)
        return piece

    return _put_together(message[_HEAD.size : _HEAD.size + length], next_piece)


def _split(kind: Any, tree: Any) -> tuple[bytes, list[torch.Tensor]]:
    file = io.BytesIO()
    pickler = kind(file)
    pickler.dump(tree)
    specs = [
        _Spec(
            t.dtype,
            tuple(t.shape),
            None if t.is_cpu else t.device,
            t.requires_grad if isinstance(t, nn.Parameter) else None,
        )
        for t in pickler.tensors
    ]
    head = pickle.dumps((specs, file.getvalue()), protocol=5)
    return head, [_bytes_of(tensor) for tensor in pickler.tensors]


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().cpu().reshape(-1)
    if flat.stride(0) != 1:  # one element, expanded
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)


def _put_together(head: bytes, next_piece: Any) -> Any:
    specs, content = pickle.loads(head)
    tensors = []
    for dtype, shape, device, requires_grad in specs:
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        piece = next_piece(size) if size else torch.empty(0, dtype=torch.uint8)
        tensor = piece.view(dtype).view(shape)
        if device is not None:
            tensor = tensor.to(device)
        tensors.append(tensor if requires_grad is None else nn.Parameter(tensor, requires_grad))
    return _Unpickler(io.BytesIO(content), tensors).load()


def _send(connection: Connection, head: bytes, pieces: Sequence[torch.Tensor]) -> None:
    size = sum(_aligned(len(piece)) for piece in pieces)
    if size < _SHARED_FROM:
        connection.send(_joined(head, pieces))
        return
    memory = SharedMemory(size)
    for piece in pieces:
        memory.allocate((len(piece),), np.dtype(np.uint8))[...] = piece.numpy()
    connection.send(_HEAD.pack(len(head), size) + head)
    connection.give_file(memory.descriptor)
    memory.close_file()


def _joined(head: bytes, pieces: Sequence[torch.Tensor]) -> bytes:
    parts: list[bytes | memoryview] = [_HEAD.pack(len(head), 0), head]
    parts.append(bytes(_aligned(_HEAD.size + len(head)) - _HEAD.size - len(head)))
    for piece in pieces:
        parts += [piece.numpy().data, bytes(_aligned(len(piece)) - len(piece))]
    return b"".join(parts)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
