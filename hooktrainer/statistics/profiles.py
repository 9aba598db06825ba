"""Performance profiles: how many seeds score more than a value, over all values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .estimators import Scores, as_table


@dataclass(frozen=True)
class Profile:
    """The share of seeds above each value; of several tasks, over all of them.

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
    scores: ArrayLike, values: ArrayLike, *, resamples: int = 2_000, seed: int = 0
) -> Profile:
    """Make a profile, with percentile intervals of the stratified bootstrap.

    Args:
        scores: ``[seeds]`` or ``[seeds, tasks]``.
        values: Where to evaluate it, ``[n]``.
        resamples: How often seeds are drawn anew, within each task.
        seed: Of the drawing.
    """
    table, at = as_table(scores), np.asarray(values, np.float64)
    above = (table[..., None] > at).mean(axis=0)  # [tasks, n]
    share = above.mean(axis=0)
    # Seeds drawn anew with their number as a chance: the number above a value is binomial.
    rng = np.random.default_rng(seed)
    drawn = rng.binomial(len(table), above, (resamples, *above.shape)).mean(axis=1) / len(table)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return Profile(at, share, low, high)
