"""Gymnasium's spaces for TorchRL's specs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from ....errors import ConfigError


def space_of(spec: Any, name: str) -> spaces.Space[Any]:
    """The space of a leaf of TorchRL's specs, for one environment.

    Args:
        spec: The leaf, without the batch dimension of the environments.
        name: What it is called in messages.

    Raises:
        ConfigError: If there is no such space.
    """
    from torchrl.data import Binary, Bounded, Categorical, MultiCategorical, OneHot, Unbounded

    shape = tuple(spec.shape)
    if isinstance(spec, Binary):
        return spaces.MultiBinary(list(shape))
    if isinstance(spec, OneHot):
        return _discrete(int(spec.space.n), shape[:-1])
    if isinstance(spec, MultiCategorical):
        return spaces.MultiDiscrete(spec.nvec.cpu().numpy())
    if isinstance(spec, Categorical):
        return _discrete(int(spec.n), shape)
    if spec.dtype is torch.bool:
        return spaces.MultiBinary(list(shape))
    if isinstance(spec, Bounded | Unbounded):
        dtype: Any = torch.empty(0, dtype=spec.dtype).numpy().dtype
        if isinstance(spec, Unbounded) and dtype.kind == "f":
            return spaces.Box(-np.inf, np.inf, shape, np.float32)
        low, high = (np.broadcast_to(x.cpu().numpy(), shape) for x in (spec.low, spec.high))
        return spaces.Box(low, high, shape, np.float32 if dtype.kind == "f" else dtype)
    raise ConfigError(
        f"{name} is a {type(spec).__name__} of shape {list(shape)}, for which there is no space: "
        "let a transform make it Bounded, Unbounded, Categorical, OneHot, MultiCategorical or "
        "Binary."
    )


def is_one_hot(spec: Any) -> bool:
    """Whether one of several is said by a one-hot vector."""
    from torchrl.data import OneHot

    return isinstance(spec, OneHot)


def _discrete(number: int, shape: tuple[int, ...]) -> spaces.Space[Any]:
    if shape in ((), (1,)):
        return spaces.Discrete(number)
    return spaces.MultiDiscrete(np.full(shape, number))
