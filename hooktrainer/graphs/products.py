"""Batched matrix products of which each depends on its own matrices alone, bit for bit."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

REGISTER = 16
"""Floats in a vector register of 512 bits, to which libraries align what they compute."""

_BMM = torch.ops.aten.bmm.default
_BADDBMM = torch.ops.aten.baddbmm.default


class AlignedProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """In the block the matrices of a batched product all lie alike in memory.

    The kernels of a CPU compute a matrix otherwise, in the last digit, if it begins elsewhere
    within a vector register, as those of a batch do whose sizes are no multiples of it.

    Attributes:
        changed: Whether there was a product of such sizes.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.changed = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function; a batched product with matrices that lie alike."""
        if func is _BMM or func is _BADDBMM:
            *added, left, right = args
            rows, columns = left.shape[1], right.shape[2]
            operands = [self._aligned(left), self._aligned(right)]
            if rows * columns % REGISTER and rows * columns > 1:
                self.changed = True
                out = _room(left, rows, columns)
                product = torch.bmm(*operands, out=out)
            else:
                product = torch.bmm(*operands)
            if not added:
                return product
            factors = kwargs or {}
            scaled = product * factors["alpha"] if "alpha" in factors else product
            return scaled + added[0] * factors.get("beta", 1)
        return func(*args, **(kwargs or {}))

    def _aligned(self, matrices: torch.Tensor) -> torch.Tensor:
        if matrices.stride(0) % REGISTER == 0 or matrices[0].numel() == 1:  # nothing is added up
            return matrices
        self.changed = True
        return _room(matrices, *matrices.shape[1:]).copy_(matrices)


def _room(like: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Memory for as many matrices, each of which begins with a register."""
    size = rows * columns
    wide = like.new_empty(len(like), -(-size // REGISTER) * REGISTER)
    return wide[:, :size].view(len(like), rows, columns)


def aligned_bmm(left: torch.Tensor, right: torch.Tensor) -> Any:
    """What a compiled graph computes in place of ``torch.bmm``, to the same end.

    Matrices that would begin elsewhere within a register than the others of their batch become
    wider, by zeros.

    Args:
        left: Matrices ``[N, rows, inner]``.
        right: Matrices ``[N, inner, columns]``.
    """
    rows, inner = left.shape[1:]
    columns = right.shape[2]
    if not any(size % REGISTER for size in (rows * inner, inner * columns, rows * columns)):
        return NotImplemented  # which leaves it as it is
    wider, deeper = -columns % REGISTER, -inner % REGISTER
    product = _BMM(
        torch.constant_pad_nd(left, [0, deeper]),
        torch.constant_pad_nd(right, [0, wider, 0, deeper]),
    )
    return product[:, :, :columns]
