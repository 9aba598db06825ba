"""The ``native`` back end: chunks in files named by their hashes; only new ones are written.

A chunk that the previous checkpoint has too is hard-linked, so that each directory is complete by
itself. ``index.json`` lists the hashes of the chunks in the order of the tensors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import torch
import xxhash

from ...base import fs
from ...base.untrusted import MalformedError, check_room, open_file, parse_json, read_file
from ..tree import TensorSpec, blank, byte_view, memory

CHUNK_BYTES = 4 << 20
_INDEX = "index.json"
_HASH = re.compile(r"[0-9a-f]{32}")


class Chunk(NamedTuple):
    """The bytes ``start`` to ``stop`` of some tensors, one after the other."""

    names: list[str]
    start: int
    stop: int


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
    """Stores tensors in chunks named by their hashes, and writes only those that changed.

    Args:
        chunk_bytes: The size of a chunk when writing. Smaller ones write less of a large tensor
            that changed in places, and take more files.
    """

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.chunk_bytes = chunk_bytes

    def write(
        self, directory: Path, tensors: Mapping[str, torch.Tensor], previous: Path | None
    ) -> Mapping[str, str]:
        """Write the chunks that ``previous`` lacks; see `Backend.write`."""
        digests: list[str] = []
        sizes = {name: tensor.nbytes for name, tensor in tensors.items()}
        if previous is None:  # else it is not known how much is to be written
            fs.check_space(directory, sum(sizes.values()))
        for names, group in groupby(layout(sizes, self.chunk_bytes), attrgetter("names")):
            views = [byte_view(tensors[name]) for name in names]
            data = memory(views[0] if len(views) == 1 else torch.cat(views))
            for chunk in group:
                piece = data[chunk.start : chunk.stop]
                digest = xxhash.xxh3_128_hexdigest(piece)
                digests.append(digest)
                file = _file(directory, digest)
                if not file.exists() and not (previous and fs.link(_file(previous, digest), file)):
                    fs.write_file(file, piece)
        index = {"chunk_bytes": self.chunk_bytes, "chunks": digests}
        fs.write_file(directory / _INDEX, json.dumps(index).encode())
        return {_file(directory, digest).name: digest for digest in digests}

    def check(self, directory: Path, specs: Mapping[str, TensorSpec]) -> None:
        """Compare the index with the tensors and the chunks; see `Backend.check`."""
        for chunk, file in _plan(directory, specs):
            size, wanted = file.stat().st_size, chunk.stop - chunk.start
            if size != wanted:
                raise MalformedError(f"{file.name} has {size} bytes for {wanted} of tensors")
        # Equal chunks are stored once, so there may be more than the files hold.
        check_room(sum(spec.nbytes for spec in specs.values()), "its tensors")

    def read(self, directory: Path, specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
        """Read all tensors; see `Backend.read`."""
        self.check(directory, specs)
        tensors = blank(specs)
        for chunk, file in _plan(directory, specs):
            views = [byte_view(tensors[name]) for name in chunk.names]
            whole = views[0] if len(views) == 1 else torch.empty(chunk.stop, dtype=torch.uint8)
            with open_file(file, directory) as opened:
                fs.read_into(opened, memory(whole)[chunk.start : chunk.stop])
            if len(views) > 1:
                torch._foreach_copy_(views, torch.split(whole, [x.numel() for x in views]))
        return tensors


def _file(directory: Path, digest: str) -> Path:
    return directory / f"{digest}.chunk"


def _plan(directory: Path, specs: Mapping[str, TensorSpec]) -> Iterator[tuple[Chunk, Path]]:
    """Yield the chunks of some tensors, each with its file.

    Raises:
        MalformedError: If the index is not of these chunks.
    """
    index = parse_json(read_file(directory / _INDEX, directory))
    if type(index) is not dict:
        raise MalformedError(f"{_INDEX} is no index of chunks")
    chunk_bytes, digests = index["chunk_bytes"], index["chunks"]
    if type(chunk_bytes) is not int or chunk_bytes < 1 or type(digests) is not list:
        raise MalformedError(f"{_INDEX} is no index of chunks")
    sizes = {name: spec.nbytes for name, spec in specs.items()}
    # First, since it bounds the number of chunks that are to be cut.
    if sum(sizes.values()) > len(digests) * chunk_bytes or (
        len(chunks := layout(sizes, chunk_bytes)) != len(digests)
    ):
        raise MalformedError(f"{_INDEX} is not about the tensors of its checkpoint")
    for chunk, digest in zip(chunks, digests, strict=True):
        if type(digest) is not str or not _HASH.fullmatch(digest):
            raise MalformedError(f"{_INDEX} names no chunk by {digest!r:.100}")
        yield chunk, _file(directory, digest)
