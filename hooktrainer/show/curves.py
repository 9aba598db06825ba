"""Curves of runs, and the mean and spread of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..log.csv import read_csv
from ..statistics import Curve as Curve
from ..store.run_dir import RunDir

_GRID = 400


@dataclass(frozen=True)
class Band:
    """The middle and the spread of several curves, over the frames that all have reached.

    All are ``float64 [n]``; without a spread the edges `low` and `high` are the middle.
    """

    frames: NDArray[np.float64]
    middle: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    count: int

    @classmethod
    def around(cls, frames: NDArray[Any], middle: NDArray[np.float64]) -> Band:
        """Make the band of one curve, without a spread."""
        return cls(frames.astype(np.float64), middle, middle, middle, 1)


def read_curves(run: RunDir, names: Iterable[str] | None = None) -> dict[str, Curve]:
    """Read metrics of a run from its `metrics.csv`, or else from its TensorBoard files.

    Args:
        run: The run.
        names: Names to read; by default all.

    Returns:
        Metric name to curve, for those that have a finite value.
    """
    wanted = None if names is None else set(names)
    try:
        series: Mapping[str, Sequence[tuple[int, float]]] = read_csv(run.metrics, wanted)
    except FileNotFoundError:
        if not run.logs.is_dir():
            return {}
        from ..log.tensorboard import read_scalars

        series = read_scalars(run.logs)
    curves = {n: Curve.of(s) for n, s in series.items() if wanted is None or n in wanted}
    return {name: curve for name, curve in curves.items() if len(curve.values)}


def band(curves: Sequence[Curve]) -> Band:
    """Return mean and standard deviation of curves, interpolated linearly.

    The edges are clipped to the range of all values.

    Args:
        curves: Each of at least one point.
    """
    low = max(int(curve.frames[0]) for curve in curves)
    high = min(int(curve.frames[-1]) for curve in curves)
    grid = np.unique(np.concatenate([curve.frames for curve in curves])).astype(np.float64)
    grid = grid[(grid >= low) & (grid <= high)]
    if len(grid) > _GRID:
        grid = np.linspace(low, high, _GRID)
    stack = np.stack([np.interp(grid, curve.frames, curve.values) for curve in curves])
    std = stack.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(grid))
    seen = np.concatenate([curve.values for curve in curves])
    middle = stack.mean(axis=0)
    low, high = (edge.clip(seen.min(), seen.max()) for edge in (middle - std, middle + std))
    return Band(grid, middle, low, high, len(curves))
