"""A copy of a state's tensors, in memory that is used again for the next copy."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor

import torch
import xxhash

from .backends.base import TensorSpec, byte_view, memory

_ALIGNMENT = 64
_BLOCK = 1 << 21
_SPAN = 1 << 24


class Arena:
    """Holds one copy of a flat dict of tensors.

    Its memory is as large as the tensors, is allocated by the first copy, and serves all later ones
    while names, dtypes and shapes stay. Of a large tensor on the CPU only the blocks whose hash
    changed are copied.
    """

    def __init__(self) -> None:
        self._specs: dict[str, TensorSpec] = {}
        self._copies: dict[str, torch.Tensor] = {}
        self._hashes: dict[str, dict[int, int]] = {}

    def capture(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copy tensors, from any device and of any strides.

        Returns:
            Contiguous CPU tensors of the same names, each with a storage of its own. They stay as
            they are until the next call.
        """
        specs = {name: TensorSpec.of(tensor) for name, tensor in tensors.items()}
        if list(specs.items()) != list(self._specs.items()):
            self._allocate(specs)
        small: list[str] = []
        with ThreadPoolExecutor(_workers(), "checkpoint-copy") as pool:
            for name, tensor in tensors.items():
                if tensor.nbytes > _BLOCK and tensor.is_cpu and tensor.is_contiguous():
                    self._copy_changes(pool, name, tensor)
                else:
                    small.append(name)
        if small:
            torch._foreach_copy_([self._copies[n] for n in small], [tensors[n] for n in small])
        return dict(self._copies)

    def _allocate(self, specs: dict[str, TensorSpec]) -> None:
        self._copies.clear()  # before allocating: two arenas at once would double the memory
        self._hashes.clear()
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

    def _copy_changes(self, pool: Executor, name: str, tensor: torch.Tensor) -> None:
        source, copy = byte_view(tensor), byte_view(self._copies[name])
        hashes = self._hashes.setdefault(name, {})
        starts = range(0, tensor.nbytes, _SPAN)
        for _ in pool.map(lambda start: _copy_span(source, copy, hashes, start), starts):
            pass


def _copy_span(
    source: torch.Tensor, copy: torch.Tensor, hashes: dict[int, int], start: int
) -> None:
    """Copy the blocks of one span whose hash is not the known one."""
    data = memory(source)
    for begin in range(start, min(start + _SPAN, len(data)), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        digest = xxhash.xxh3_64_intdigest(data[block])
        if hashes.get(begin) != digest:
            copy[block].copy_(source[block])
            hashes[begin] = digest


def _workers() -> int:
    """Threads for copying: memory is faster than one core."""
    available = getattr(os, "sched_getaffinity", None)
    return min(4, len(available(0)) if available else os.cpu_count() or 1)
