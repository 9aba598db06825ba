"""Performance profiles: how many seeds do better than a value, over all values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .estimators import Scores, as_table


@dataclass(frozen=True)
class Profile:
    """The share of seeds that do better than each value; of several tasks, over all of them.

    Attributes:
        values: Rising, ``float64 [n]``.
        share: ``float64 [n]``.
        low: Lower ends of 95 % intervals, each value by itself, ``float64 [n]``.
        high: Upper ends, ``float64 [n]``.
    """

    values: Scores
    share: Scores
    low: Scores
    high: Scores


def performance_profile(
    scores: ArrayLike,
    values: ArrayLike,
    *,
    minimize: bool = False,
    resamples: int = 2_000,
    seed: int = 0,
) -> Profile:
    """Make a profile, with percentile intervals of the stratified bootstrap.

    Args:
        scores: ``[seeds]`` or ``[seeds, tasks]``.
        values: Where to evaluate it, ``[n]``.
        minimize: Whether seeds below a value do better than it, in place of those above.
        resamples: How often seeds are drawn anew, within each task.
        seed: Of the drawing.
    """
    table, at = as_table(scores), np.asarray(values, np.float64)
    better = table[..., None] < at if minimize else table[..., None] > at
    shares = better.mean(axis=0)  # [tasks, n]
    share = shares.mean(axis=0)
    # Seeds drawn anew with their number as a chance: the number of better ones is binomial.
    rng = np.random.default_rng(seed)
    drawn = rng.binomial(len(table), shares, (resamples, *shares.shape)).mean(axis=1) / len(table)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return Profile(at, share, low, high)
