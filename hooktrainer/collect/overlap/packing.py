"""Sends trees of tensors between processes with one copy on each side.

Tensors are pickled as NumPy arrays whose memory is kept apart. Large messages go through shared
memory, so that the sender need not wait for the reader; small ones are faster through the pipe.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import nn

from ...base.worker import Channel, Worker
from ..buffers import SharedMemory

_SHARED_FROM = 2**17  # bytes; a pipe holds little more, and then the sender waits for the reader


class _Pickler(cloudpickle.Pickler):
    """Pickles lambdas and definitions of scripts, and tensors without the rest of their storage."""

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) not in (torch.Tensor, nn.Parameter):
            return super().reducer_override(thing)
        try:
            array = thing.detach().cpu().numpy()
        except (TypeError, RuntimeError):  # such as bfloat16, or a sparse one
            return super().reducer_override(thing)
        device = None if thing.is_cpu else thing.device
        requires_grad = thing.requires_grad if type(thing) is nn.Parameter else None
        return _tensor, (array, device, requires_grad)


def _tensor(array: Any, device: Any, requires_grad: bool | None) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    tensor = tensor if device is None else tensor.to(device)
    return tensor if requires_grad is None else nn.Parameter(tensor, requires_grad)


def send(connection: Worker | Channel, tree: Any) -> None:
    """Send a tree of plain data, tensors and TensorDicts."""
    head, pieces = _split(tree)
    size = SharedMemory.size_for(sum(map(len, pieces)), len(pieces))
    if size < _SHARED_FROM:
        connection.send(_joined(head, pieces))
        return
    memory = SharedMemory(size)
    for piece in pieces:
        memory.allocate((len(piece),), np.dtype(np.uint8))[...] = piece
    connection.send(pickle.dumps((head, size, [len(piece) for piece in pieces])))
    connection.give_file(memory.descriptor)
    memory.close_file()


def receive(connection: Worker | Channel) -> Any:
    """Wait for a tree sent by `send`. Its tensors are writable."""
    head, shared, pieces = pickle.loads(connection.receive())
    if shared:
        memory = SharedMemory(shared, connection.take_file())
        memory.close_file()
        pieces = [memory.allocate((length,), np.dtype(np.uint8)) for length in pieces]
    return pickle.loads(head, buffers=pieces)


def dump(tree: Any) -> bytes:
    """Serialize a tree that may hold code, for `load`."""
    return _joined(*_split(tree))


def load(message: bytes) -> Any:
    """Deserialize the result of `dump`."""
    head, _, pieces = pickle.loads(message)
    return pickle.loads(head, buffers=pieces)


def _split(tree: Any) -> tuple[bytes, list[memoryview]]:
    file, pieces = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(file, protocol=5, buffer_callback=pieces.append).dump(tree)
    return file.getvalue(), [piece.raw() for piece in pieces]


def _joined(head: bytes, pieces: list[memoryview]) -> bytes:
    # A bytearray is writable when it is unpickled.
    return pickle.dumps((head, 0, list(map(bytearray, pieces))), protocol=5)
