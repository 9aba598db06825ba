"""Spaces of Gymnasium as plain data: what a saved policy reads and gives."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from ..base.space_parts import Leaf, parts_of
from ..collect.spaces import ObservationLayout
from .actions import Action, JointAction
from .interface import Observation


def observation_of(leaf: Leaf, before: tuple[str | int, ...] = ()) -> Observation:
    """A leaf, as plain data, behind some keys."""
    start = leaf.start.tolist() if hasattr(leaf.start, "tolist") else leaf.start
    return Observation(
        ".".join(leaf.key), (*before, *leaf.path), leaf.shape, leaf.dtype.name, start
    )


def action_of(
    space: gym.Space[Any], categorical: bool, bounded: gym.Space[Any] | None
) -> Action | JointAction:
    """The actions of a space.

    Args:
        space: The space.
        categorical: Whether discrete ones are indices; else they are one-hot.
        bounded: The space to whose bounds the environment clips them; ``None`` if it does not.
    """
    limits = [part for _, part in parts_of(bounded)] if bounded is not None else None
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        parts = parts_of(space)
        within = [None] * len(parts) if limits is None else limits
        return JointAction(
            tuple(
                (path, _one(part, True, limit))
                for (path, part), limit in zip(parts, within, strict=True)
            )
        )
    return _one(space, categorical, limits[0] if limits else None)


def _one(space: gym.Space[Any], categorical: bool, limit: gym.Space[Any] | None) -> Action:
    start = getattr(space, "start", None)  # of discrete spaces
    start = np.asarray(start).tolist() if start is not None and np.any(start) else None
    sizes: list[int] = []
    if not categorical:
        sizes = np.ravel(getattr(space, "n", getattr(space, "nvec", []))).tolist()
    low = high = None
    if isinstance(limit, gym.spaces.Box) and limit.is_bounded():
        low, high = limit.low.tolist(), limit.high.tolist()
    return Action(tuple(space.shape or ()), str(space.dtype), start, tuple(sizes), low, high)


def draw_examples(
    space: gym.Space[Any], layout: ObservationLayout, info: Mapping[str, Any], number: int
) -> list[npt.NDArray[Any]]:
    """Observations drawn from a copy of the space, so that nobody's random numbers are used.

    Returns:
        ``[number, ...]`` for each leaf.
    """
    drawing = copy.deepcopy(space)
    drawing.seed(0)
    rows = [layout.copies(drawing.sample(), info) for _ in range(number)]
    return [np.stack(values) for values in zip(*rows, strict=True)]
