"""State trees as messages to other processes, split by the codec of checkpoints."""

from __future__ import annotations

import io
import os
import pickle
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import torch

from ..base.worker import Channel, Worker
from ..store.tree import Json, flatten, unflatten
from .buffers import shared_arrays, unnamed_file
from .spaces import Array

_LARGE = 2**13  # bytes; smaller arrays fit in a pipe, so that sending need not wait for the reader
_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


class Message(NamedTuple):
    """A state tree whose tensors are apart, as arrays by name."""

    skeleton: Json
    arrays: dict[str, Array]
    dtypes: dict[str, torch.dtype]
    """Those that NumPy lacks, such as bfloat16."""


def pack(tree: Any) -> Message:
    """Split a state tree; the message shares the memory of tensors on the CPU.

    Raises:
        CheckpointError: If the tree holds a value that cannot be saved either.
    """
    skeleton, tensors = flatten(tree)
    message = Message(skeleton, {}, {})
    for name, tensor in tensors.items():
        tensor = tensor.cpu()
        try:
            array = tensor.numpy()
        except TypeError:
            message.dtypes[name] = tensor.dtype
            array = tensor.view(_OF_SIZE[tensor.itemsize]).numpy()
        message.arrays[name] = array
    return message


def unpack(message: Message) -> Any:
    """Rebuild the tree; its tensors are the message's memory, or copies if that is read-only."""
    tensors = {}
    for name, array in message.arrays.items():
        tensors[name] = torch.from_numpy(array if array.flags.writeable else array.copy())
    for name, dtype in message.dtypes.items():
        tensors[name] = tensors[name].view(dtype)
    return unflatten(message.skeleton, tensors)


def send(connection: Worker | Channel, tree: Any) -> None:
    """Send a state tree, large arrays through memory that both processes share."""
    pieces: list[memoryview] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        piece = buffer.raw()
        if len(piece) >= _LARGE:
            pieces.append(piece)
        return len(piece) < _LARGE

    head = pickle.dumps(pack(tree), protocol=5, buffer_callback=stays)
    sizes = [len(piece) for piece in pieces]
    connection.send(pickle.dumps((head, sizes)))
    if sizes:
        file = unnamed_file()
        for array, piece in zip(_shared(file, sizes), pieces, strict=True):
            array[...] = piece
        connection.give_file(file)
        os.close(file)


def receive(connection: Worker | Channel) -> Any:
    """Wait for a tree sent by `send`. Its tensors are writable."""
    head, sizes = pickle.loads(connection.receive())
    pieces: list[Array] = []
    if sizes:
        file = connection.take_file()
        pieces = _shared(file, sizes)
        os.close(file)
    return unpack(pickle.loads(head, buffers=pieces))


def _shared(file: int, sizes: list[int]) -> list[Array]:
    return shared_arrays(file, [((size,), np.uint8) for size in sizes])


def dump(thing: Any) -> bytes:
    """Pickle an object with code, such as a collector; memory that tensors share is kept once."""
    file = io.BytesIO()
    torch.save(thing, file, pickle_module=cloudpickle, pickle_protocol=pickle.HIGHEST_PROTOCOL)
    return file.getvalue()


def load(data: bytes) -> Any:
    """Return what `dump` pickled in a process of this run."""
    return torch.load(io.BytesIO(data), weights_only=False)
