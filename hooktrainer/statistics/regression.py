"""Whether new seeds of a published result are worse than it, decided as they are added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ..base.words import plural
from ..errors import ConfigError
from .intervals import Scores, iqm

LOOKS = (3, 5, 8, 12)
"""Numbers of new seeds at which it may be decided."""
_ERROR = 0.05


@dataclass(frozen=True)
class Regression:
    """The decision so far.

    Attributes:
        verdict: ``"worse"``; ``"as good"``, if not worse by more than the margin; or ``None`` if
            neither has been shown.
        seeds: New seeds at the last look; 0 before the first.
        next_look: New seeds needed for the next look; ``None`` after the last, and once decided.
        limit: The score that ``"as good"`` was compared with: the published ones less the margin.
    """

    verdict: Literal["worse", "as good"] | None
    seeds: int
    next_look: int | None
    limit: float


def judge_regression(
    published: ArrayLike,
    scores: ArrayLike,
    *,
    margin: float = 0.1,
    looks: Sequence[int] = LOOKS,
    minimize: bool = False,
) -> Regression:
    """Decide whether new seeds are worse than published ones, or when to look again.

    Call it at any time while seeds are added. Each look makes two exact rank tests (Mann and
    Whitney, 1947, with ties): of the new scores against the published ones, and against these less
    the margin. Each spends its part of 5 % at each look. If new and published seeds have the same
    distribution, the probability of ``"worse"`` is at most 5 %; if the new ones lost the margin,
    that of ``"as good"`` is.

    Args:
        published: Scores of the published seeds, ``[seeds]``.
        scores: Scores of the new ones, ``[seeds]``, in the order in which they were trained.
        margin: The loss to find, as a fraction of the published interquartile mean.
        looks: Numbers of new seeds to look at, rising.
        minimize: Whether less is better.

    Raises:
        ValueError: If scores are not finite, if the published ones are too few for any decision,
            or if the margin is not positive.
    """
    sign = -1 if minimize else 1
    before, after = sign * np.asarray(published, float), sign * np.asarray(scores, float)
    if not np.isfinite([*before, *after]).all():
        raise ValueError("scores hold NaN or infinity")
    part = _ERROR / len(looks)
    if comb(len(before) + max(looks), len(before)) * part < 1:
        raise ConfigError(
            f"{plural(len(before), 'published seed')} cannot show anything, whatever "
            f"{max(looks)} new ones score: publish more."
        )
    if not margin > 0:
        raise ValueError(f"{margin=} must be positive")
    center = float(iqm(before))
    lost = margin * abs(center)
    done = [size for size in looks if size <= len(after)]
    verdict: Literal["worse", "as good"] | None = None
    size = 0
    for size in done:
        new = after[:size]
        if _chance_of_less(new, before) <= part:
            verdict = "worse"
        elif _chance_of_less(before - lost, new) <= part:
            verdict = "as good"
        if verdict is not None:
            break
    last = verdict is not None or len(done) == len(looks)
    return Regression(verdict, size, None if last else looks[len(done)], sign * (center - lost))


def _chance_of_less(scores: Scores, others: Scores) -> float:
    """Return the chance that the ranks of ``scores`` among all are as low, were all exchangeable.

    It is the share of all choices of as many ranks whose sum is not larger, ties at their mean
    rank. Choices are counted by size and sum.
    """
    from scipy.stats import rankdata

    ranks = np.rint(2 * rankdata(np.concatenate([scores, others]))).astype(int)
    size = len(scores)
    ways = np.zeros((size + 1, ranks.sum() + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] = ways[1:, rank:] + ways[:-1, :-rank]
    return float(ways[size, : ranks[:size].sum() + 1].sum() / ways[size].sum())
