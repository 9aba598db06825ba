"""The ``native`` back end: packed files in chunks, of which only the changed ones are written.

The tensors, one after the other, are cut into chunks, and every chunk is hashed. Chunks that the
previous checkpoint does not have are written to one new *pack* file; the packs that hold the others
are hard-linked, so that each directory is complete by itself. ``index.json`` says where each chunk
lies. A pack of which the previous checkpoint used less than half is left behind, and what was still
used of it is written again: a directory never takes more than about twice the size of its state.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
import xxhash

from ...base.untrusted import MalformedError, check_room, open_file, parse_json, read_file, shown
from .. import fs
from ..blocks import BLOCK_BYTES, HashedTensors, hash_blocks
from ..tensor_spec import TensorSpec, byte_view, memory

CHUNK_BYTES = BLOCK_BYTES
MAX_PACKS = 32
_INDEX = "index.json"
_PACK = re.compile(r"\d{6,12}\.pack", re.ASCII)


class Chunk(NamedTuple):
    """The bytes ``start`` to ``stop`` of some tensors, one after the other."""

    names: list[str]
    start: int
    stop: int


class Extent(NamedTuple):
    """Where a chunk lies."""

    pack: str
    offset: int
    size: int


def layout(sizes: Mapping[str, int], chunk_bytes: int) -> list[Chunk]:
    """Cut tensors, given by their sizes in bytes, into chunks.

    A tensor larger than a chunk has chunks of its own, so that a change of size elsewhere does not
    shift it; smaller ones share chunks, in their order.
    """
    chunks: list[Chunk] = []
    shared: list[list[str]] = []
    room = 0
    for name, size in sizes.items():
        if size > chunk_bytes:
            names = [name]
            for start in range(0, size, chunk_bytes):
                chunks.append(Chunk(names, start, min(start + chunk_bytes, size)))
        elif size:
            if size > room:
                shared.append([])
                room = chunk_bytes
            shared[-1].append(name)
            room -= size
    return chunks + [Chunk(names, 0, sum(sizes[name] for name in names)) for names in shared]


class NativeBackend:
    """Stores tensors in packed, hashed chunks, and writes only those that changed.

    Args:
        chunk_bytes: The size of a chunk when writing. Smaller ones write less of a large tensor
            that changed in places, and take a little longer.
    """

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.chunk_bytes = chunk_bytes

    def write(
        self, directory: Path, tensors: Mapping[str, torch.Tensor], previous: Path | None
    ) -> Mapping[str, str]:
        """Write the chunks that ``previous`` lacks; see `Backend.write`."""
        known, pack_number = _reuse(directory, previous)
        linked = {place.pack for place in known.values()}
        pack = f"{pack_number:06d}.pack"
        sizes = {name: tensor.nbytes for name, tensor in tensors.items()}
        rows: list[tuple[str, Extent]] = []
        with fs.NewFile(directory / pack, 0 if known else sum(sizes.values())) as file:
            chunks = layout(sizes, self.chunk_bytes)
            for data, pieces in self._spans(tensors, chunks, hash_first=bool(known)):
                rows += _store(file, data, pieces, known)
        used = {place.pack for _, place in rows}
        for unused in {pack, *linked} - used:
            fs.remove_tree(directory / unused)
        index = {"chunk_bytes": self.chunk_bytes, "chunks": [[n, *place] for n, place in rows]}
        fs.write_file(directory / _INDEX, json.dumps(index).encode())
        return {pack: file.digest} if pack in used else {}

    def _spans(
        self, tensors: Mapping[str, torch.Tensor], chunks: Sequence[Chunk], hash_first: bool
    ) -> Iterator[tuple[memoryview, list[tuple[str, int]]]]:
        """Yield the bytes of some chunks at a time, and the hash and length of each of them.

        Some, because every call that lets other threads run in the meantime may have to wait.

        Args:
            tensors: The tensors.
            chunks: Their chunks.
            hash_first: Whether a tensor is hashed on several threads before any of it is written,
                which is quicker where little of it is; else what is written is still in the cache.
        """
        for names, group in groupby(chunks, lambda chunk: chunk.names):
            data = _gather([tensors[name] for name in names])
            digests = self._digests(tensors, names)
            if hash_first and not digests and len(names) == 1:
                digests = hash_blocks(data, self.chunk_bytes)
            while some := list(islice(group, 8)):
                pieces = [
                    (
                        digests[chunk.start // self.chunk_bytes]
                        if digests
                        else xxhash.xxh3_128_hexdigest(data[chunk.start : chunk.stop]),
                        chunk.stop - chunk.start,
                    )
                    for chunk in some
                ]
                yield data[some[0].start : some[-1].stop], pieces

    def _digests(self, tensors: Mapping[str, torch.Tensor], names: Sequence[str]) -> list[str]:
        """The hashes of the chunks of a large tensor, if they are known already; else none."""
        if isinstance(tensors, HashedTensors) and self.chunk_bytes == BLOCK_BYTES:
            return tensors.digests.get(names[0], [])  # small tensors, which share chunks, have none
        return []

    def check(self, directory: Path, specs: Mapping[str, TensorSpec]) -> None:
        """Compare the index with the tensors and the packs; see `Backend.check`."""
        with _Packs(directory) as packs:
            for _, digest, place in _plan(directory, specs, packs):
                packs.check(place, digest)

    def read(self, directory: Path, specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
        """Read all tensors; see `Backend.read`."""
        with _Packs(directory) as packs:
            plan = _plan(directory, specs, packs)
            tensors = {
                name: torch.empty(spec.shape, dtype=spec.dtype) for name, spec in specs.items()
            }
            for chunk, digest, place in plan:
                packs.read(place, digest, chunk, tensors)
        return tensors


def _plan(
    directory: Path, specs: Mapping[str, TensorSpec], packs: _Packs
) -> list[tuple[Chunk, str, Extent]]:
    """The chunks of some tensors, and for each its hash and its place.

    Raises:
        MalformedError: If the index is not of these chunks, the packs do not hold them, or there is
            no memory for them.
    """
    chunk_bytes, rows = _read_index(directory)
    sizes = {name: spec.nbytes for name, spec in specs.items()}
    # First, since it bounds the number of chunks that are to be cut.
    if sum(sizes.values()) > len(rows) * chunk_bytes or (
        len(chunks := layout(sizes, chunk_bytes)) != len(rows)
    ):
        raise MalformedError(f"{_INDEX} is not about the tensors of its checkpoint")
    for chunk, (_, place) in zip(chunks, rows, strict=True):
        length = chunk.stop - chunk.start
        if place.size != length:
            raise MalformedError(f"{_INDEX} gives {place.size} bytes to {length} bytes of tensors")
        if place.offset + place.size > packs.size(place.pack):
            raise MalformedError(f"{_INDEX} names bytes beyond the end of {place.pack}")
    # Equal chunks are stored once, so there may be more than the packs hold.
    check_room(sum(sizes.values()), "its tensors")
    return [(chunk, *row) for chunk, row in zip(chunks, rows, strict=True)]


def _read_index(directory: Path) -> tuple[int, list[tuple[str, Extent]]]:
    """The size of a chunk, and each chunk's hash and place, as ``index.json`` has them.

    Raises:
        MalformedError: If it is none.
    """
    index = parse_json(read_file(directory / _INDEX, directory))
    chunk_bytes, rows = (index.get("chunk_bytes"), index.get("chunks")) if index else (None, None)
    if type(chunk_bytes) is not int or chunk_bytes < 1 or type(rows) is not list:
        raise MalformedError(f"{_INDEX} is no index of chunks")
    found = []
    for row in rows:
        if not (
            type(row) is list
            and [type(cell) for cell in row] == [str, str, int, int]
            and _PACK.fullmatch(row[1])
            and min(row[2:]) >= 0
        ):
            raise MalformedError(f"{_INDEX} has a row {shown(row)}")
        found.append((row[0], Extent(*row[1:])))
    return chunk_bytes, found


def _store(
    file: fs.NewFile,
    data: memoryview,
    pieces: Sequence[tuple[str, int]],
    known: dict[str, Extent],
) -> Iterator[tuple[str, Extent]]:
    """Write the chunks that are not known, each run of them at once; yield where each chunk is."""
    begin = end = 0  # of the run not written yet
    for digest, length in pieces:
        if digest in known:
            file.write(data[begin:end])
            begin = end + length
        else:
            known[digest] = Extent(file.path.name, file.written + end - begin, length)
        end += length
        yield digest, known[digest]
    file.write(data[begin:end])


def _gather(tensors: Sequence[torch.Tensor]) -> memoryview:
    """Return the bytes of tensors, one after the other; without a copy if they lie like that.

    `ctypes` takes a fifth of the time of torch's views.
    """
    if len(tensors) == 1:
        return memory(byte_view(tensors[0]))
    sources = [
        x if x.is_cpu and x.is_contiguous() else x.detach().cpu().contiguous() for x in tensors
    ]
    places = [(source.data_ptr(), source.nbytes) for source in sources]
    total = sum(size for _, size in places)
    if all(place + size == following for (place, size), (following, _) in pairwise(places)):
        return memoryview((ctypes.c_char * total).from_address(places[0][0])).cast("B")
    buffer = torch.empty(total, dtype=torch.uint8)
    address = buffer.data_ptr()
    for place, size in places:
        ctypes.memmove(address, place, size)
        address += size
    return memory(buffer)


def _reuse(directory: Path, previous: Path | None) -> tuple[dict[str, Extent], int]:
    """Link the packs of ``previous`` worth keeping.

    Returns:
        Where the chunks in them lie, by hash, and the number of the next pack.
    """
    if previous is None:
        return {}, 0
    places = dict(_read_index(previous)[1])
    live: Counter[str] = Counter()
    for place in places.values():
        live[place.pack] += place.size
    packs = [
        pack
        for pack, size in live.most_common(MAX_PACKS)
        if 2 * size >= (previous / pack).stat().st_size
    ]
    try:
        for pack in packs:
            fs.link(previous / pack, directory / pack)
    except OSError:  # a file system without links, or a file with too many: write it all again
        for pack in packs:
            fs.remove_tree(directory / pack)
        packs = []
    kept = {name: place for name, place in places.items() if place.pack in packs}
    return kept, max((int(Path(pack).stem) + 1 for pack in live), default=0)


class _Packs:
    """The open packs of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, FileIO] = {}

    def __enter__(self) -> _Packs:
        return self

    def __exit__(self, *_: Any) -> None:
        for file in self._files.values():
            file.close()

    def check(self, place: Extent, digest: str) -> None:
        """Compare one chunk with its hash."""
        file = self._open(place.pack)
        file.seek(place.offset)
        if fs.hash_open_file(file, place.size) != digest:
            raise MalformedError(f"{place.pack} is damaged at {place.offset}")

    def read(
        self, place: Extent, digest: str, chunk: Chunk, tensors: dict[str, torch.Tensor]
    ) -> None:
        """Read one chunk into the tensors it is made of, and check it against its hash."""
        targets = [tensors[name] for name in chunk.names]
        if len(targets) == 1:
            data = memory(byte_view(targets[0]))[chunk.start : chunk.stop]
        else:
            data = memoryview(bytearray(chunk.stop - chunk.start))
        file = self._open(place.pack)
        file.seek(place.offset)
        done = 0
        while done < len(data) and (count := file.readinto(data[done:])):
            done += count
        if done < len(data) or xxhash.xxh3_128_hexdigest(data) != digest:
            raise MalformedError(f"{place.pack} is damaged at {place.offset}")
        if len(targets) > 1:
            _scatter(data, targets)

    def size(self, pack: str) -> int:
        """The size of a pack in bytes."""
        return os.fstat(self._open(pack).fileno()).st_size

    def _open(self, pack: str) -> FileIO:
        if pack not in self._files:
            self._files[pack] = open_file(self._directory / pack, self._directory)
        return self._files[pack]


def _scatter(data: memoryview, tensors: Sequence[torch.Tensor]) -> None:
    """Copy one buffer into small tensors, the inverse of `_gather`."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    for tensor in tensors:
        ctypes.memmove(tensor.data_ptr(), address, tensor.nbytes)
        address += tensor.nbytes
