"""The ``torchsnapshot`` back end: tensors stored by the torchsnapshot package."""

from __future__ import annotations

import asyncio
import json
import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import xxhash

from ...base.untrusted import (
    MalformedError,
    check_name,
    check_room,
    open_file,
    parse_json,
    read_file,
)
from ...errors import CheckpointError
from .. import fs
from ..tensor_spec import TensorSpec, byte_view, memory

_T = TypeVar("_T")
_KEY = "tensors"
_CHECKSUMS = "checksums.json"
_METADATA = ".snapshot_metadata"
_BLOCK = 1 << 22
_ROOT = f"0/{_KEY}"  # of the only rank


class TorchSnapshotBackend:
    """Stores tensors with torchsnapshot, as bytes.

    torchsnapshot 0.1.0 fails on some dtypes and on parameters, so each tensor is handed over as
    uint8 under its number. It also fails inside a running event loop, so it runs in a thread of its
    own; and it would wait for every rank of a process group, so more than one is refused.

    It believes what its metadata say: places of files anywhere, sizes, pickles, YAML that makes
    objects. So reading is done here: the metadata are JSON, and the files the bytes of tensors.

    Raises:
        CheckpointError: If torchsnapshot cannot be imported.
    """

    def __init__(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit, at import
                import torchsnapshot
        except ImportError as error:
            raise CheckpointError(
                f"CKPT_BACKEND=torchsnapshot needs the package torchsnapshot ({error}): "
                "pip install torchsnapshot"
            ) from error
        self._library = torchsnapshot

    def write(
        self, directory: Path, tensors: Mapping[str, torch.Tensor], previous: Path | None
    ) -> Mapping[str, str]:
        """Write all tensors as one snapshot; see `Backend.write`."""
        self._refuse_ranks()
        views = _views(tensors)
        fs.check_space(directory, sum(view.numel() for view in views.values()))
        state = {_KEY: self._library.StateDict(**views)}
        _in_thread(lambda: self._library.Snapshot.take(str(directory), state))
        fs.write_file(directory / _CHECKSUMS, json.dumps(_checksums(views)).encode())
        return {}

    def check(self, directory: Path, specs: Mapping[str, TensorSpec]) -> None:
        """Compare the metadata with the tensors and the files; see `Backend.check`."""
        found = {}
        for key, pieces in _pieces(directory, specs).items():
            digest = xxhash.xxh3_128()
            for piece in pieces:
                for block in _blocks(directory, piece):
                    digest.update(block)
            found[key] = digest.hexdigest()
        _check_hashes(directory, found)

    def read(self, directory: Path, specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
        """Read all tensors; see `Backend.read`."""
        pieces = _pieces(directory, specs)
        tensors = {name: torch.empty(spec.shape, dtype=spec.dtype) for name, spec in specs.items()}
        views = _views(tensors)
        for key, view in views.items():
            data = memory(view)
            for piece in pieces[key]:
                for block in _blocks(directory, piece):
                    data[: len(block)] = block
                    data = data[len(block) :]
        _check_hashes(directory, _checksums(views))
        return tensors

    def _refuse_ranks(self) -> None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            ranks = distributed.get_world_size()
            if ranks > 1:
                raise CheckpointError(
                    f"The back end torchsnapshot would wait for all {ranks} ranks of the process "
                    "group. Set CKPT_BACKEND to torch or native."
                )


def _views(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The bytes of each tensor that has any, by its number: torchsnapshot fails on empty ones."""
    return {str(i): byte_view(x) for i, x in enumerate(tensors.values()) if x.numel()}


def _checksums(views: Mapping[str, torch.Tensor]) -> dict[str, str]:
    return {key: xxhash.xxh3_128_hexdigest(memory(view)) for key, view in views.items()}


def _in_thread(function: Callable[[], _T]) -> _T:
    def run() -> _T:
        try:
            return function()
        except BaseException as error:
            _close_loops(error)
            raise

    with ThreadPoolExecutor(1, "torchsnapshot") as pool:
        return pool.submit(run).result()


def _close_loops(error: BaseException) -> None:
    """Close the event loop, and the sockets in it, that torchsnapshot leaves open when it fails."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        loop = frame.f_locals.get("event_loop")
        if isinstance(loop, asyncio.AbstractEventLoop) and not loop.is_closed():
            for task in asyncio.all_tasks(loop):
                task.cancel()
                loop.run_until_complete(asyncio.wait([task]))
            loop.close()


class _Piece(NamedTuple):
    """Bytes of a file that belong to a tensor."""

    file: str
    start: int
    size: int


def _pieces(directory: Path, specs: Mapping[str, TensorSpec]) -> dict[str, list[_Piece]]:
    """Where the bytes of each tensor that has any lie, by its number.

    Raises:
        MalformedError: If the metadata list anything but just these bytes, the files do not hold
            them, or there is no memory for them.
    """
    content = parse_json(read_file(directory / _METADATA, directory))
    entries = content.get("manifest") if type(content) is dict else None
    wanted = {str(i): spec.nbytes for i, spec in enumerate(specs.values()) if spec.nbytes}
    names = {_ROOT, *(f"{_ROOT}/{key}" for key in wanted)}
    if type(entries) is not dict or entries.keys() != names:
        raise MalformedError(f"{_METADATA} does not list the tensors of its checkpoint")
    found = {}
    for key, nbytes in wanted.items():
        entry = entries[f"{_ROOT}/{key}"]
        kind, pieces = entry.get("type") if type(entry) is dict else None, []
        if kind == "Tensor":
            pieces = [_piece(entry, [0], [nbytes], 0)]
        elif kind == "ChunkedTensor" and type(entry.get("chunks")) is list:
            for chunk in entry["chunks"]:
                begin = sum(piece.size for piece in pieces)
                pieces.append(_piece(chunk["tensor"], chunk["offsets"], chunk["sizes"], begin))
        if sum(piece.size for piece in pieces) != nbytes:
            raise MalformedError(f"{_METADATA} lists more than plain tensors, or of other sizes")
        found[key] = pieces
    _check_sizes(directory, [piece for pieces in found.values() for piece in pieces])
    return found


def _check_sizes(directory: Path, pieces: Sequence[_Piece]) -> None:
    sizes: dict[str, int] = {}
    for piece in pieces:
        if piece.file not in sizes:
            with open_file(directory / piece.file, directory) as file:
                sizes[piece.file] = os.fstat(file.fileno()).st_size
        if piece.start + piece.size > sizes[piece.file]:
            raise MalformedError(f"{_METADATA} names bytes beyond the end of {piece.file}")
    check_room(sum(piece.size for piece in pieces), "its tensors")


def _piece(entry: Mapping[str, Any], offsets: list[int], sizes: list[int], begin: int) -> _Piece:
    """One piece of a tensor's bytes, which begins where the one before ended."""
    size, span = sizes[0], entry.get("byte_range")
    start, stop = (0, size) if span is None else span
    if not (
        entry["serializer"] == "buffer_protocol"
        and entry["dtype"] == "torch.uint8"
        and [type(start), type(stop), type(size)] == [int] * 3
        and offsets == [begin]
        and entry["shape"] == sizes == [size]
        and 0 <= start <= start + size == stop
    ):
        raise MalformedError(f"{_METADATA} lists more than plain tensors, which is never loaded")
    return _Piece(check_name(entry["location"]), start, size)


def _blocks(directory: Path, piece: _Piece) -> Iterator[memoryview]:
    """The bytes of a piece, some at a time; each block is there until the next is asked for."""
    buffer, left = memoryview(bytearray(min(_BLOCK, piece.size))), piece.size
    with open_file(directory / piece.file, directory) as file:
        file.seek(piece.start)
        while left and (count := file.readinto(buffer[:left])):
            yield buffer[:count]
            left -= count


def _check_hashes(directory: Path, found: Mapping[str, str]) -> None:
    if found != parse_json(read_file(directory / _CHECKSUMS, directory)):
        raise MalformedError("the tensors do not match their hashes")
