"""An estimate over time with an interval at each point."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .estimators import Scores, as_table, iqm
from .intervals import LEAST_SEEDS, expanded


def curve_interval(
    curves: ArrayLike, *, resamples: int = 2_000, seed: int = 0
) -> tuple[Scores, Scores, Scores]:
    """The interquartile mean of curves, and 95 % intervals, each for its own point.

    Intervals are expanded percentile intervals; a whole seed is drawn at a time.

    Args:
        curves: At the same frames, ``[seeds, points]``.
        resamples: How often seeds are drawn anew.
        seed: Of the drawing.

    Returns:
        The estimate, and the lower and upper ends; of fewer than 5 seeds, the estimate thrice.
    """
    table = as_table(curves)
    middle: Scores = iqm(table, axis=0)
    if len(table) < LEAST_SEEDS["iqm"]:
        return middle, middle, middle
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(table), (resamples, len(table)))
    at_once = max(1, 4_000_000 // table.size)
    drawn = np.concatenate(
        [iqm(table[rows[n : n + at_once]], axis=1) for n in range(0, resamples, at_once)]
    )
    outside = (1 - expanded(len(table), len(table) - 1)) / 2
    low, high = np.quantile(drawn, [outside, 1 - outside], axis=0)
    return middle, low, high
