"""`Arena`: a copy of a state's tensors, in memory that is used again for the next copy.

Of a large tensor only the blocks that changed are copied: they are hashed, on several threads.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import xxhash

from .tensor_spec import TensorSpec, byte_view, memory

_ALIGNMENT = 64
BLOCK_BYTES = 2 << 20
_BLOCKS_AT_ONCE = 8


class HashedTensors(dict[str, torch.Tensor]):
    """Tensors by name, of which the large ones were hashed in blocks while they were copied.

    Attributes:
        digests: For the name of a tensor the xxh3-128 hashes of its blocks, in hexadecimal. Every
            block but the last has `BLOCK_BYTES`.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__(tensors)
        self.digests: dict[str, list[str]] = {}


class Arena:
    """Holds one copy of a flat dict of tensors.

    Its memory is as large as the tensors, is allocated by the first copy, and serves all later ones
    while names, dtypes and shapes stay. Of a large tensor on the CPU only the blocks whose hash
    changed are copied.
    """

    def __init__(self) -> None:
        self._specs: dict[str, TensorSpec] = {}
        self._copies: dict[str, torch.Tensor] = {}
        self._digests: dict[str, list[str]] = {}

    def capture(
        self, tensors: Mapping[str, torch.Tensor], specs: dict[str, TensorSpec]
    ) -> HashedTensors:
        """Copy tensors, from any device and of any strides.

        Args:
            tensors: The tensors.
            specs: Their specs, in the same order.

        Returns:
            Contiguous CPU tensors of the same names, each with a storage of its own. They stay as
            they are until the next call.
        """
        if specs != self._specs or list(specs) != list(self._specs):
            self._allocate(specs)
        captured = HashedTensors(self._copies)
        small: list[str] = []
        for name, tensor in tensors.items():
            if tensor.nbytes > BLOCK_BYTES and tensor.is_cpu and tensor.is_contiguous():
                captured.digests[name] = self._digests.setdefault(name, [])
                copy_blocks(tensor, self._copies[name], self._digests[name])
            else:
                small.append(name)
        if small:
            torch._foreach_copy_([self._copies[n] for n in small], [tensors[n] for n in small])
        return captured

    def _allocate(self, specs: dict[str, TensorSpec]) -> None:
        self._copies.clear()  # before allocating: two arenas at once would double the memory
        self._digests.clear()
        starts, end = [], 0
        for spec in specs.values():
            starts.append(end)
            end += -(-spec.nbytes // _ALIGNMENT) * _ALIGNMENT
        buffer = mmap.mmap(-1, max(end, 1))
        for (name, spec), start in zip(specs.items(), starts, strict=True):
            if spec.nbytes:
                count = spec.nbytes // spec.dtype.itemsize
                flat = torch.frombuffer(buffer, dtype=spec.dtype, count=count, offset=start)
                self._copies[name] = flat.view(spec.shape)
            else:
                self._copies[name] = torch.empty(spec.shape, dtype=spec.dtype)
        self._specs = specs


def copy_blocks(source: torch.Tensor, copy: torch.Tensor, digests: list[str]) -> None:
    """Make a copy equal to its source, block by block, and hash the blocks.

    Args:
        source: Contiguous, on the CPU; its bytes are cut into blocks of `BLOCK_BYTES`.
        copy: A tensor like it.
        digests: The xxh3-128 hashes of the blocks of ``copy`` as it is, in hexadecimal, or an empty
            list; brought up to date. Blocks whose hash stays are not copied.
    """
    old, new = byte_view(copy), byte_view(source)
    data = memory(new)
    count = -(-len(data) // BLOCK_BYTES)
    digests.extend([""] * (count - len(digests)))

    def work(first: int) -> None:
        for number in range(first, min(first + _BLOCKS_AT_ONCE, count)):
            block = slice(number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES)
            digest = xxhash.xxh3_128_hexdigest(data[block])
            if digest != digests[number]:
                digests[number] = ""  # unknown, should the copy be interrupted
                old[block].copy_(new[block])
                digests[number] = digest

    _on_threads(work, range(0, count, _BLOCKS_AT_ONCE))


def hash_blocks(data: memoryview, block_bytes: int) -> list[str]:
    """The xxh3-128 hashes of the blocks of some bytes, in hexadecimal."""
    count = -(-len(data) // block_bytes)
    digests = [""] * count

    def work(first: int) -> None:
        for number in range(first, min(first + _BLOCKS_AT_ONCE, count)):
            block = data[number * block_bytes : (number + 1) * block_bytes]
            digests[number] = xxhash.xxh3_128_hexdigest(block)

    _on_threads(work, range(0, count, _BLOCKS_AT_ONCE))
    return digests


def _on_threads(work: Callable[[int], None], starts: Sequence[int]) -> None:
    if len(starts) < 2:
        work(0)
        return
    with ThreadPoolExecutor(_workers(), "checkpoint-hash") as pool:
        for _ in pool.map(work, starts):
            pass


def _workers() -> int:
    """Threads: memory is faster than one core."""
    available = getattr(os, "sched_getaffinity", None)
    return min(4, len(available(0)) if available else os.cpu_count() or 1)
