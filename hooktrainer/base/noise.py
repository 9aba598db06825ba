"""Random numbers in the shape of a tensor, drawn so that a compiler shows who draws them.

They are those of `torch.randn_like` and `torch.rand_like`. These two, though, ``torch.compile``
traces without asking the function modes that are active, such as one that gives other numbers in
their place (`hooktrainer.graphs.random_calls`); of what draws in place it asks them.
"""

from __future__ import annotations

import torch


def normal_like(x: torch.Tensor) -> torch.Tensor:
    """Standard normal numbers, shaped as ``x``."""
    return torch.empty_like(x).normal_()


def uniform_like(x: torch.Tensor) -> torch.Tensor:
    """Uniform numbers in [0, 1), shaped as ``x``."""
    return torch.empty_like(x).uniform_()
