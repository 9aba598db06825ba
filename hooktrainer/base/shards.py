"""Networks whose parameters are parts of tensors that several processes hold together."""

from __future__ import annotations

from typing import Any

from torch import nn


def is_part(value: Any) -> bool:
    """Whether a value is one process's part of a tensor: a ``DTensor``, which is slow to import."""
    return callable(getattr(value, "full_tensor", None))


def is_sharded(module: Any) -> bool:
    """Whether a module has parameters that are shared out."""
    return isinstance(module, nn.Module) and any(map(is_part, module.parameters()))
