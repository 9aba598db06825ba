"""Where a further seed would score, which is not where the middle of all seeds is."""

from __future__ import annotations

import math
from typing import Final

from numpy.typing import ArrayLike

from ..base.words import plural
from .estimators import as_table
from .intervals import CONFIDENCE, Interval

LEAST_SEEDS: Final = 5


def further_seed(scores: ArrayLike) -> Interval:
    """Say where a further seed would score in 95 of 100 studies.

    It is Student's prediction interval, as far as the worst and the best seed at least. That of
    the interquartile mean is narrower, the more so the more seeds there are: single seeds are
    expected outside of it.

    Args:
        scores: ``[seeds]``.

    Raises:
        ValueError: If the scores are no such list, or hold what is not finite.

    Returns:
        The mean, and where a further seed would score. With fewer than 5 seeds, or all of one
        score, there is no interval.
    """
    table = as_table(scores)
    if table.shape[1] != 1:
        raise ValueError(f"scores of {table.shape[1]} tasks: give those of one, [seeds]")
    count, value = len(table), float(table.mean())
    low, high = float(table.min()), float(table.max())
    if count < LEAST_SEEDS or low == high:
        alike = ", all of one score" if count > 1 and low == high else ""
        return Interval(
            value, None, None, f"{plural(count, 'seed')}{alike}: no interval for a further one"
        )
    from scipy.stats import t

    spread = float(table.std(ddof=1)) * math.sqrt(1 + 1 / count)
    reach = float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) * spread
    return Interval(value, min(low, value - reach), max(high, value + reach), "Student's, or range")
