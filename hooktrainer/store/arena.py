"""A copy of a state's tensors, in memory that is used again for the next copy."""

from __future__ import annotations

import mmap
from collections.abc import Mapping

import torch

from .backends.base import HashedTensors
from .blocks import BLOCK_BYTES, copy_blocks
from .tensor_spec import TensorSpec

_ALIGNMENT = 64


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
