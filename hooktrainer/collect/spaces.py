"""How the observations of Gymnasium's spaces are written into preallocated rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ..base.space_parts import MASK, Leaf, Path, leaves_of
from ..errors import ConfigError

Array = npt.NDArray[Any]

_RESERVED = {"action", "done", "terminated", "truncated", "reward", "next", "collector", "is_init"}


class ObservationLayout:
    """The leaves of an observation space, and how a group writes them into preallocated rows.

    The same code serves one environment and a batch of them: a batched dict observation is a dict
    of batched arrays.

    Args:
        space: The observation space of one environment.
        mask: The action mask that the environment puts in its ``info``, as an example; ``None`` if
            it gives none. It becomes the last leaf, ``"action_mask"``, boolean.

    Raises:
        ConfigError: If a part of the space has no tensor form, or a key is taken.
    """

    def __init__(self, space: spaces.Space[Any], mask: Any = None) -> None:
        leaves = list(leaves_of(space))
        self.mask_in_info = mask is not None and all(leaf.key != (MASK,) for leaf in leaves)
        if self.mask_in_info:
            shape = np.shape(mask)
            leaves.append(Leaf((MASK,), (), shape, np.dtype(bool)))
        for leaf in leaves:
            if leaf.key[0] in _RESERVED:
                raise ConfigError(
                    f"The observation has the key {leaf.key[0]!r}, which the batch needs for "
                    "itself. Rename it in the environment."
                )
        self.leaves = tuple(leaves)
        self._paths = tuple(leaf.path for leaf in leaves[: -1 if self.mask_in_info else None])
        self._starts = tuple(leaf.start for leaf in leaves)
        # The common case, one array and nothing else, is written without any call.
        self.is_single = self._paths == ((),) and not self.mask_in_info and leaves[0].start is None

    def observation_values(self, observation: Any) -> list[Any]:
        """The leaves of ``observation``, uncopied and in order, without a mask from the info."""
        found = []
        for path, start in zip(self._paths, self._starts, strict=False):
            value = observation
            for key in path:
                value = None if value is None else value[key]
            if value.__class__ is not np.ndarray:
                refuse_missing(value, "observation", path)
            found.append(value if start is None else value - start)
        return found

    def values(self, observation: Any, info: Mapping[str, Any]) -> list[Any]:
        """All leaves, uncopied and in order."""
        found = self.observation_values(observation)
        if self.mask_in_info:
            try:
                mask = info[MASK]
            except KeyError:
                raise KeyError(
                    f"info[{MASK!r}] is missing. The environment gave an action mask when it was "
                    "reset, so it has to give one at every step."
                ) from None
            refuse_missing(mask, "info", (MASK,))
            found.append(mask)
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


def refuse_missing(value: Any, what: str, path: Path = ()) -> None:
    """Refuse ``None``, by itself or among numbers, of which NumPy would make NaN or false.

    Args:
        value: What an environment returned.
        what: What it is, such as ``"reward"``.
        path: The keys that lead to it.

    Raises:
        ConfigError: If it is, or holds, ``None``.
    """
    if value is None or (
        not isinstance(value, (int, float, np.generic)) and np.asarray(value).dtype == object
    ):
        where = what + "".join(f"[{key!r}]" for key in path)
        raise ConfigError(
            f"the environment returned {where} = {value!r:.80}, which is no number: let reset() "
            "return (observation, info), and step() return (observation, reward, terminated, "
            "truncated, info), without None among the values."
        )
