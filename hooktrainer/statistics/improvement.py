"""The probability of improvement, its test, and the number of seeds it needs.

They compare scores by order alone, so they need no scale, and tasks can be pooled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .intervals import CONFIDENCE, Interval, Scores, as_table, as_tables

Labels = NDArray[np.bool_]
_TINY = 1e-12
_POWER = 0.8
_RESAMPLES = 2_000


def probability_of_improvement(
    scores: ArrayLike, others: ArrayLike, *, minimize: bool = False
) -> Interval:
    """Return the probability that a seed of one scores more than one of the other; ties count half.

    The mean over tasks. The interval holds all values that the estimate does not contradict, by the
    variance that such a value implies (Newcombe 2006, method 5) or, if it is larger, by the one
    that the scores show (DeLong et al. 1988). Unlike a bootstrap interval, it does not shrink to
    nothing when all seeds of one are better.

    Args:
        scores: ``[seeds]`` or ``[seeds, tasks]``.
        others: Likewise, of the same tasks.
        minimize: Whether it is the probability of scoring less.
    """
    from scipy.stats import norm

    first, second = as_tables(scores, others)
    if minimize:
        first, second = -first, -second
    (n, tasks), m = first.shape, len(second)
    parts = [_wins(a, b) for a, b in zip(first.T, second.T, strict=True)]
    value = float(np.mean([wins.mean() for wins in parts]))
    if min(n, m) < 2:
        return Interval(value, None, None, "1 seed: no interval for the probability of improvement")
    seen = float(np.mean([_variance(wins) for wins in parts])) / tasks
    grid = np.linspace(0, 1, 10_001)
    implied = grid * (1 - grid) / (n * m) / tasks
    implied *= 1 + ((n + m) / 2 - 1) * ((1 - grid) / (2 - grid) + grid / (1 + grid))
    reach = norm.ppf((1 + CONFIDENCE) / 2) * np.sqrt(np.maximum(implied, seen))
    fits = grid[np.abs(grid - value) <= reach + _TINY]
    return Interval(value, float(fits.min(initial=value)), float(fits.max(initial=value)), "score")


def permutation_test(
    scores: ArrayLike, others: ArrayLike, *, permutations: int = 9_999, seed: int = 0
) -> float:
    """Return the two-sided p-value of no difference, by permuting group labels.

    The statistic is that of Brunner and Munzel: the distance of the probability of improvement from
    a half, in standard errors. The test is exact if both have the same distribution, with any
    number of seeds and ties, and holds for many seeds if only spreads differ (Neubert and Brunner
    2007).

    Args:
        scores: ``[seeds]`` or ``[seeds, tasks]``.
        others: Likewise, of the same tasks.
        permutations: How many are drawn; if there are no more, all are used.
        seed: Seed of the permutations.
    """
    first, second = as_tables(scores, others)
    n, m, tasks = len(first), len(second), first.shape[1]
    pooled = np.concatenate([first, second])
    drawn = _all_labels(n, m, permutations) if tasks == 1 else None
    if drawn is None:
        drawn = permuted_labels(n, m, tasks, permutations, np.random.default_rng(seed))
    statistics = np.abs(brunner_munzel(pooled, drawn))
    return float((statistics >= statistics[0] - _TINY).mean())


def permuted_labels(n: int, m: int, tasks: int, ways: int, rng: np.random.Generator) -> Labels:
    """Label the first n seeds, truly and permuted in each task: ``[1 + ways, tasks, n + m]``."""
    own = np.broadcast_to(np.arange(n + m) < n, (1 + ways, tasks, n + m))
    return np.concatenate([own[:1], rng.permuted(own[1:], axis=-1)])


def brunner_munzel(pooled: Scores, labels: Labels) -> Scores:
    """Return the Brunner-Munzel statistic for each way to divide seeds into two groups.

    Infinite if all of one group are better. ``pooled`` is ``[seeds, tasks]``; ``labels`` marks the
    first group, ``[ways, tasks, seeds]``, of one size.
    """
    above, spread = np.zeros(len(labels)), np.zeros(len(labels))
    for task, scores in enumerate(pooled.T):
        first = labels[:, task].astype(np.float64)
        second = 1 - first
        wins = _wins(scores, scores)
        n, m = first[0].sum(), second[0].sum()
        over, under = second @ wins.T / m, first @ wins.T / n  # share of wins of each seed
        estimate = (over * first).sum(-1) / n
        above += estimate - 0.5
        for members, share, count in ((first, over, n), (second, under, m)):
            mean = (share * members).sum(-1, keepdims=True) / count
            squares = ((share - mean) ** 2 * members).sum(-1)
            spread += squares / (max(count - 1, 1) * count)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            np.abs(above) < _TINY, 0.0, above / np.sqrt(np.where(spread < _TINY, 0, spread))
        )


def seeds_to_separate(
    scores: ArrayLike, others: ArrayLike, *, error: float = 1 - CONFIDENCE
) -> int | None:
    """Estimate how many seeds each group needs to be separated; ``None`` if more than 1,000.

    By Noether (1987), from the probability of improvement, shrunk towards a half because it is an
    estimate.

    Args:
        scores: ``[seeds]`` or ``[seeds, tasks]``.
        others: Likewise.
        error: The probability of finding a difference if there is none.
    """
    from scipy.stats import norm

    first, second = as_tables(scores, others)
    pairs, tasks = len(first) * len(second), first.shape[1]
    found = abs(probability_of_improvement(first, second).value - 0.5) * pairs / (pairs + 1)
    if found < _TINY:
        return None
    reach = float(norm.isf(error / 2) + norm.isf(1 - _POWER))
    need = math.ceil(reach**2 / (6 * tasks * found**2))
    return need if need <= 1000 else None


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values of several comparisons for the chance of any false finding (Holm 1979).

    Compare each, in the same order, with the error that is allowed for all.
    """
    count, corrected, highest = len(p_values), [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (count - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def _wins(scores: Scores, others: Scores) -> Scores:
    """Return for every pair 1 if the first scored more, 0.5 if as much: ``[first, second]``."""
    return np.heaviside(scores[:, None] - others[None, :], 0.5)


def _variance(wins: Scores) -> float:
    """Return the variance of the mean of a table of wins."""
    return float(sum(wins.mean(1 - axis).var(ddof=1) / wins.shape[axis] for axis in (0, 1)))


def _all_labels(n: int, m: int, most: int) -> Labels | None:
    """Return all ways to choose n of n + m, the first n first; ``None`` if more than ``most``."""
    from itertools import combinations

    if math.comb(n + m, n) > most:
        return None
    chosen = np.array(list(combinations(range(n + m), n)))
    labels = np.zeros((len(chosen), 1, n + m), np.bool_)
    labels[np.arange(len(chosen))[:, None], 0, chosen] = True
    return labels


# -- Performance profiles: how many seeds do better than a value, over all values.


@dataclass(frozen=True)
class Profile:
    """The share of seeds that do better than each value, over all tasks.

    Attributes:
        values: Rising, ``float64 [n]``.
        share: ``float64 [n]``.
        low: Lower ends of pointwise 95 % intervals, ``float64 [n]``.
        high: Upper ends, ``float64 [n]``.
    """

    values: Scores
    share: Scores
    low: Scores
    high: Scores


def performance_profile(scores: ArrayLike, values: ArrayLike, *, minimize: bool = False) -> Profile:
    """Return a performance profile with percentile intervals of the stratified bootstrap.

    Args:
        scores: ``[seeds]`` or ``[seeds, tasks]``.
        values: Where to evaluate it, ``[n]``.
        minimize: Whether seeds below a value do better than it.
    """
    table, at = as_table(scores), np.asarray(values, np.float64)
    better = table[..., None] < at if minimize else table[..., None] > at
    shares = better.mean(axis=0)  # [tasks, n]
    share = shares.mean(axis=0)
    # In a bootstrap resample, the number of better seeds is binomial.
    rng = np.random.default_rng(0)
    drawn = rng.binomial(len(table), shares, (_RESAMPLES, *shares.shape)).mean(axis=1) / len(table)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return Profile(at, share, low, high)
