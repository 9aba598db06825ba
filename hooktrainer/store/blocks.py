"""Finding and copying what changed of a large tensor: its blocks are hashed, on several threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import xxhash

from .tensor_spec import byte_view, memory

BLOCK_BYTES = 2 << 20
_BLOCKS_AT_ONCE = 8


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
