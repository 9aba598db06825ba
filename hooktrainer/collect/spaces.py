"""Writes the observations of Gymnasium's spaces into preallocated rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ..base.space_parts import MASK, Leaf, Path, leaves_of
from ..base.untrusted import one_line
from ..errors import ConfigError

Array = npt.NDArray[Any]
RESERVED = {"action", "done", "terminated", "truncated", "reward", "next", "collector", "is_init"}
RESERVED |= {"episode_reward", "step_count", "info", "index", "action_log_prob", "state_value"}
RESERVED |= {"advantage", "value_target", "td_error", "priority_weight"}  # of learners


class ObservationLayout:
    """The leaves of an observation space, and how they are written into preallocated rows.

    The same code serves one environment and a batch of them: a batched dict observation is a dict
    of batched arrays.
    """

    def __init__(self, space: spaces.Space[Any], mask: Any = None, mask_size: int = 0) -> None:
        leaves = list(leaves_of(space))
        self.mask_in_info = mask is not None and all(leaf.key != (MASK,) for leaf in leaves)
        if self.mask_in_info:
            shape = np.shape(plain_mask(mask))
            leaves.append(Leaf((MASK,), (), shape, np.dtype(bool)))
        for leaf in leaves:
            if leaf.key[0] in RESERVED:
                raise ConfigError(
                    f"The observation has the key {leaf.key[0]!r}, which the batch needs for "
                    "itself. Rename it in the environment."
                )
            fits = leaf.key == (MASK,) and leaf.shape == (mask_size,)
            if mask_size and leaf.key[0] == MASK and not fits:
                where = f"info[{MASK!r}]" if self.mask_in_info else f"observation{list(leaf.path)}"
                raise ConfigError(
                    f"{where} has the shape {list(leaf.shape)}; the actions need one array of the "
                    f"shape [{mask_size}], the masks of several choices side by side."
                )
        self.leaves = tuple(leaves)
        observed = leaves[: -1 if self.mask_in_info else None]
        self._places = tuple((leaf.path, leaf.start) for leaf in observed)
        # The common case, one array and nothing else, is written without any call.
        self.is_single = len(leaves) == 1 and not leaves[0].path and leaves[0].start is None

    def check(
        self, observation: Any, info: Mapping[str, Any], name: str, num_envs: int | None = None
    ) -> None:
        """Check an observation against the space; called where an episode begins."""
        for value, leaf in zip(self.values(observation, info), self.leaves, strict=True):
            check_leaf(value if leaf.start is None else value + leaf.start, leaf, name, num_envs)

    def values(self, observation: Any, info: Mapping[str, Any] | None) -> list[Any]:
        """The leaves, uncopied and in order; without ``info`` no mask that comes in it."""
        found = []
        for path, start in self._places:
            value = observation
            try:
                for key in path:
                    if value is None:
                        break
                    value = value[key]
            except (LookupError, TypeError):
                where = "".join(f"[{key!r}]" for key in path)
                raise ConfigError(
                    f"the environment returned an observation without {where}, which is in its "
                    "space: let reset() and step() return every entry."
                ) from None
            if value.__class__ is not np.ndarray:
                refuse_missing(value, "observation", path)
            found.append(value if start is None else value - start)
        if self.mask_in_info and info is not None:
            if MASK not in info:
                raise ConfigError(
                    f"info[{MASK!r}] is missing: the first reset() gave one, so every step has to."
                )
            mask = info[MASK]
            is_plain = mask.__class__ is np.ndarray and mask.dtype != object
            found.append(mask if is_plain else plain_mask(mask))
        return found

    def write(
        self, rows: Sequence[Array], index: Any, observation: Any, info: Mapping[str, Any]
    ) -> None:
        """Copy the leaves of ``observation`` to ``rows[leaf][index]``."""
        if self.is_single and observation.__class__ is np.ndarray:
            rows[0][index] = observation
            return
        for row, value in zip(rows, self.values(observation, info), strict=True):
            row[index] = value

    def copies(self, observation: Any, info: Mapping[str, Any], index: Any = ...) -> list[Array]:
        """Copies of the leaves, or of one environment's part of batched leaves."""
        return [
            np.array(np.asarray(value)[index], dtype=leaf.dtype)
            for value, leaf in zip(self.values(observation, info), self.leaves, strict=True)
        ]


def plain_mask(mask: Any) -> Array:
    """A mask as one array; Gymnasium's own, a tuple with one for each choice, is joined."""
    if isinstance(mask, tuple):
        mask = np.concatenate([np.ravel(part) for part in mask])
    refuse_missing(mask, "info", (MASK,))
    return np.asarray(mask)


def refuse_missing(value: Any, what: str, path: Path = ()) -> None:
    """Refuse ``None``, alone or among numbers, which NumPy would turn into NaN or false."""
    if value is None or (
        not isinstance(value, (int, float, np.generic)) and np.asarray(value).dtype == object
    ):
        where = what + "".join(f"[{key!r}]" for key in path)
        raise ConfigError(
            f"the environment returned {where} = {value!r:.80}, which is no number: let reset() "
            "and step() return what Gymnasium's do, without None among the values."
        )


def check_numbers(name: object, **values: Any) -> None:
    """Refuse ``None`` and arrays, such as of one element, where a step returns a number."""
    for what, value in values.items():
        refuse_missing(value, what)
        if np.ndim(value):
            raise ConfigError(
                f"step() of {name} returned {what} = {value!r:.80}, of the shape "
                f"{list(np.shape(value))}: let it return a number, such as float({what})."
            )


def check_leaf(value: Any, leaf: Leaf, name: str, num_envs: int | None) -> None:
    """Refuse a value that NumPy would change when it is written to a batch."""
    array = value if value.__class__ is np.ndarray else np.asarray(value)
    space, kind = leaf.space, array.dtype.kind
    wanted = leaf.shape if num_envs is None else (num_envs, *leaf.shape)
    # A space of one number is given it without its dimensions; there is nothing to mistake.
    is_number = num_envs is None and not array.shape and math.prod(leaf.shape) == 1
    if array.shape != wanted and not is_number:
        problem = f"has the shape {list(array.shape)}, not {list(wanted)}"
    elif array.dtype == leaf.dtype and space.__class__ is spaces.Box:
        return
    elif kind not in "biuf":
        problem = f"is of the type {array.dtype}, which holds no numbers"
    elif leaf.dtype.kind == "f" or leaf.key[-1] == MASK:
        return
    else:
        inside = array == array.astype(leaf.dtype)
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            size = space.n if isinstance(space, spaces.Discrete) else space.nvec
            inside &= (array >= space.start) & (array < space.start + size)
        if kind != "f" and inside.all():
            return
        problem = f"is {one_line(array, 80)}, {array.dtype}, which is outside of it"
    where, expected = f"info[{MASK!r}]", f"it had the shape {list(leaf.shape)} at the first reset"
    if space is not None:
        where = "the observation" + "".join(f"[{key!r}]" for key in leaf.path)
        expected = f"its space is {one_line(space, 120)}"
    raise ConfigError(f"{where} of {one_line(name, 120)} {problem}; {expected}. Let both agree.")
