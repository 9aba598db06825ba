"""TorchRL's C++ trees; where the extension does not load, trees in Python with their methods."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torchrl.data.replay_buffers.samplers import prioritized

MODULE = "torchrl._torchrl"


class Tree:
    """The methods that TorchRL's samplers call, by going through all leaves."""

    dtype: Any = np.float32
    neutral = 0.0
    reduce: Any = np.sum

    def __init__(self, size: int) -> None:
        self.values = np.full(size, self.neutral, self.dtype)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, torch.Tensor):
            return torch.from_numpy(self.values[index.numpy()].copy())
        found = self.values[index]
        return found.copy() if isinstance(index, np.ndarray) else found.item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[np.asarray(index)] = np.asarray(value)

    def query(self, left: int, right: int) -> Any:
        return type(self).reduce(self.values[left:right]).item()

    def scan_lower_bound(self, mass: Any) -> Any:
        return np.searchsorted(np.cumsum(self.values), mass).astype(np.int64)


def use(patch: pytest.MonkeyPatch) -> None:
    """Make prioritized samplers of TorchRL work until ``patch`` is undone."""
    if prioritized.SumSegmentTreeFp32 is not None:
        return
    extension = ModuleType(MODULE)
    for what, neutral, reduce in (("Sum", 0.0, np.sum), ("Min", np.finfo("f4").max, np.min)):
        for bits in (32, 64):
            body = {
                "__module__": MODULE,
                "dtype": np.dtype(f"f{bits // 8}"),
                "neutral": neutral,
                "reduce": staticmethod(reduce),
            }
            kind = type(f"{what}SegmentTreeFp{bits}", (Tree,), body)
            setattr(extension, kind.__name__, kind)
            patch.setattr(prioritized, kind.__name__, kind)
    patch.setitem(sys.modules, MODULE, extension)
