"""Whether what an environment returns is what its observation space says, for one array of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ..base.space_parts import MASK, Leaf
from ..base.untrusted import one_line
from ..errors import ConfigError


def check_leaf(value: Any, leaf: Leaf, name: str, num_envs: int | None = None) -> None:
    """Refuse what NumPy would make something else of on its way into a batch.

    Args:
        value: The array, or what is made one.
        leaf: What it has to be. A mask in the ``info`` has no space.
        name: What the environment is called.
        num_envs: Of how many environments the array is; ``None`` if it is of one, unbatched.

    Raises:
        ConfigError: If it has another shape, is of floats where the space is of integers, lies
            outside of what the space can hold, or is a mask with NaN in it.
    """
    array = value if value.__class__ is np.ndarray else np.asarray(value)
    wanted = leaf.shape if num_envs is None else (num_envs, *leaf.shape)
    if array.shape != wanted:
        # A space of one number is given it without its dimensions; there is nothing to mistake.
        if num_envs is not None or array.shape or math.prod(leaf.shape) != 1:
            raise _refused(leaf, name, f"has the shape {list(array.shape)}, not {list(wanted)}")
    elif array.dtype == leaf.dtype and leaf.space.__class__ is spaces.Box:
        return
    kind = array.dtype.kind
    if kind not in "biuf":
        raise _refused(leaf, name, f"is of the type {array.dtype}, which holds no numbers")
    if leaf.key[-1] == MASK:
        if kind == "f" and np.isnan(array).any():
            raise _refused(leaf, name, f"holds NaN: {array}")
    elif leaf.dtype.kind != "f":
        if kind == "f":
            raise _refused(leaf, name, f"is of {array.dtype}, which would be cut to integers")
        _check_range(array, leaf, name)


def _check_range(array: npt.NDArray[Any], leaf: Leaf, name: str) -> None:
    """Refuse integers that a discrete space does not have, or that do not fit into the type."""
    space = leaf.space
    low: Any = None
    high: Any = None
    if isinstance(space, spaces.Discrete):
        low, high = int(space.start), int(space.start + space.n) - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif leaf.dtype.kind in "iu" and array.dtype.kind != "b":
        low, high = np.iinfo(leaf.dtype).min, np.iinfo(leaf.dtype).max
    if low is not None and ((array < low) | (array > high)).any():
        raise _refused(leaf, name, f"is {array}, which is outside of it")


def _refused(leaf: Leaf, name: str, what: str) -> ConfigError:
    if leaf.space is None:
        where, said = f"info[{MASK!r}]", f"it had the shape {list(leaf.shape)} at the first reset"
    else:
        where = "the observation" + "".join(f"[{key!r}]" for key in leaf.path)
        said = f"its space is {one_line(leaf.space, 120)}"
    return ConfigError(
        f"{where} of {one_line(name, 120)} {one_line(what, 120)}; {said}. Let reset() and step() "
        "return what the space says, or let the space say what they return."
    )
