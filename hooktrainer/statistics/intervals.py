"""95 % intervals by the stratified bootstrap, refused where they would not hold.

Seeds are resampled within each task (Agarwal et al. 2021). With few seeds the plain bootstrap
covers only 80 to 91 %, so its quantiles are moved outwards by Student's t and n / (n - 1)
(Hesterberg 2015, "expanded percentiles"), from BCa intervals where defined, else percentile
intervals. docs/statistics-evidence.md lists the measured coverage for every estimator, number of
seeds and shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.words import plural

CONFIDENCE: Final = 0.95
LEAST_SEEDS: Final = {"iqm": 5, "median": 5, "mean": 30}
"""Least seeds of a single task for an interval. A mean depends on the rare bad seed."""
LEAST_OF_SEVERAL: Final = 3
"""Least seeds of each task for an interval except of the mean, with 10 seeds or more in all."""
_WHOLE_RANGE = 6  # n seeds miss the median with probability 2 ** (1 - n)
_CURVE_RESAMPLES = 2_000
_AT_ONCE = 4_000_000  # numbers drawn at a time


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval.

    Attributes:
        value: The estimate.
        low: Lower end; ``None`` if there is no interval.
        high: Upper end; ``None`` if there is no interval.
        method: The method, or why there is no interval.
    """

    value: float
    low: float | None
    high: float | None
    method: str

    @property
    def refused(self) -> str | None:
        """Why there is no interval; ``None`` if there is one."""
        return self.method if self.low is None else None


def interval(
    scores: ArrayLike, estimator: str = "iqm", *, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Estimate, with a 95 % interval if the seeds allow one.

    Args:
        scores: ``[seeds]``, or ``[seeds, tasks]`` on one scale.
        estimator: A name of `ESTIMATORS`.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Raises:
        ValueError: If the scores have another shape, or are not finite.
    """
    return _estimate((as_table(scores),), estimator, resamples, seed)


def difference(
    scores: ArrayLike,
    others: ArrayLike,
    estimator: str = "iqm",
    *,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Estimate the difference of two groups, with a 95 % interval if the seeds allow one.

    Args:
        scores: ``[seeds]`` or ``[seeds, tasks]``.
        others: Likewise, of the same tasks and independent seeds.
        estimator: A name of `ESTIMATORS`.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Raises:
        ValueError: As `interval`, or if the numbers of tasks differ.
    """
    return _estimate(as_tables(scores, others), estimator, resamples, seed)


def _estimate(tables: tuple[Scores, ...], estimator: str, resamples: int, seed: int) -> Interval:
    """Estimate one table, or the difference of two, with an interval."""

    def estimate(first: Scores, *other: Scores, axis: int | None = -1) -> Any:
        statistic = ESTIMATORS[estimator]
        value = statistic(first, axis=axis)
        return value - statistic(other[0], axis=axis) if other else value

    value = float(estimate(*tables, axis=None))
    if why := next(filter(None, (_refusal(table, estimator) for table in tables)), None):
        return Interval(value, None, None, why)
    if all(map(_unanimous, tables)):
        return Interval(value, value, value, "exact")
    table, alone = tables[0], len(tables) == 1
    count, tasks = table.shape
    if alone and tasks == 1 and count < _WHOLE_RANGE:
        return Interval(value, float(table.min()), float(table.max()), "range")
    low, high, method = _bootstrap(tables, estimate, resamples, seed)
    if alone and estimator == "mean":  # the bootstrap underestimates its tails
        from scipy.stats import t

        spread = math.sqrt(float(table.var(axis=0, ddof=1).sum()) / count) / tasks
        reach = float(t.ppf((1 + CONFIDENCE) / 2, tasks * (count - 1))) * spread
        low, high, method = min(low, value - reach), max(high, value + reach), f"{method}, or t"
    return Interval(value, low, high, method)


def percentile_interval(distribution: ArrayLike) -> tuple[float, float]:
    """Return the plain 95 % percentile interval of a bootstrap distribution."""
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.asarray(distribution, np.float64), [outside, 1 - outside])
    return float(low), float(high)


def expanded_confidence(count: int, freedom: int) -> float:
    """Return the confidence at which a bootstrap interval of few seeds is a 95 % interval.

    ``count`` are the seeds of a task in the smaller group, ``freedom`` the degrees of freedom of
    all.
    """
    from scipy.stats import norm, t

    reach = math.sqrt(count / (count - 1)) * float(t.ppf((1 + CONFIDENCE) / 2, freedom))
    return 1 - 2 * float(norm.sf(reach))


def _bootstrap(
    tables: tuple[Scores, ...], estimate: Any, resamples: int, seed: int
) -> tuple[float, float, str]:
    """Return the interval of an estimate of one or two tables, each task of each a stratum."""
    import warnings

    from scipy.stats import DegenerateDataWarning, bootstrap

    strata = [column for table in tables for column in table.T]
    tasks = tables[0].shape[1]  # of each table
    size = sum(table.size for table in tables)

    def of_strata(*drawn: Any, axis: int = -1) -> Any:
        starts = range(0, len(drawn), tasks)
        return estimate(*(np.concatenate(drawn[at : at + tasks], axis=-1) for at in starts))

    fewest = min(len(table) for table in tables)
    freedom = sum(table.shape[1] * (len(table) - 1) for table in tables)
    done: Any = None
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
            warnings.simplefilter("ignore", DegenerateDataWarning)
            done = bootstrap(
                strata,
                of_strata,
                n_resamples=0 if done else resamples,
                batch=max(1, _AT_ONCE // size),
                vectorized=True,
                confidence_level=expanded_confidence(fewest, freedom),
                method=method,
                bootstrap_result=done,
                rng=np.random.default_rng(seed),
            )
        low, high = map(float, done.confidence_interval)
        if math.isfinite(low) and math.isfinite(high):
            break
    return low, high, f"expanded {method}"


def _unanimous(table: Scores) -> bool:
    return bool((table == table[0]).all())


def _refusal(table: Scores, estimator: str) -> str | None:
    """Return why scores allow no interval; ``None`` if they do."""
    count, tasks = table.shape
    several = f" in each of {tasks} tasks" if tasks > 1 else ""
    nothing = f"no interval for the {NAMES[estimator]}"
    if count == 1 and tasks == 1:
        return f"one seed shows no spread: an interval takes {LEAST_SEEDS[estimator]} seeds or more"
    if _unanimous(table):
        least = _least_unanimous(estimator) if tasks == 1 else None
        if least is not None and count >= least:
            return None
        below = "" if least is None else f" below {least}"
        return f"{plural(count, 'seed')}{several}, all of one score: {nothing}{below}"
    least = LEAST_SEEDS[estimator]
    robust = estimator != "mean"
    if robust and tasks > 1 and count >= LEAST_OF_SEVERAL and count * tasks >= 2 * least:
        return None
    return None if count >= least else f"{plural(count, 'seed')}{several}: {nothing}"


def _least_unanimous(estimator: str) -> int | None:
    """Return how many equal scores show that the estimate is that score.

    If a share p of all seeds scores it, n seeds do so with probability p^n: at 95 %, the share is
    at least 0.05^(1/n). From a half on the median is that score, from three quarters on the
    interquartile mean, whatever the others score; the mean never is for sure.
    """
    share = {"median": 0.5, "iqm": 0.75}.get(estimator)
    return None if share is None else math.ceil(math.log(1 - CONFIDENCE) / math.log(share))


Scores = NDArray[np.float64]
Estimator = Callable[..., Any]
"""Called with scores and ``axis=``, which it reduces."""


def iqm(scores: ArrayLike, axis: int | None = None) -> Any:
    """Interquartile mean: the mean without the lowest and highest quarter (Agarwal et al. 2021).

    Scores of several tasks are pooled before they are cut.
    """
    from scipy.stats import trim_mean

    return trim_mean(scores, 0.25, axis=axis)


ESTIMATORS: Final[Mapping[str, Estimator]] = {"iqm": iqm, "mean": np.mean, "median": np.median}
"""Estimators by name, called with scores and ``axis=``."""
NAMES: Final = {"iqm": "interquartile mean", "mean": "mean", "median": "median"}
"""Their names for people."""


def as_table(scores: ArrayLike) -> Scores:
    """Return scores of ``[seeds]`` or ``[seeds, tasks]`` as finite ``float64 [seeds, tasks]``."""
    table = np.asarray(scores, np.float64)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or not table.size:
        raise ValueError(f"scores are [seeds] or [seeds, tasks], not {list(table.shape)}")
    if not np.isfinite(table).all():
        raise ValueError("scores hold NaN or infinity: a seed without a score has to be left out")
    return table


def as_tables(scores: ArrayLike, others: ArrayLike) -> tuple[Scores, Scores]:
    """Return the scores of two groups as tables, of the same tasks."""
    first, second = as_table(scores), as_table(others)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"{first.shape[1]} and {second.shape[1]} tasks cannot be compared")
    return first, second


def curve_interval(curves: ArrayLike) -> tuple[Scores, Scores, Scores]:
    """Return the interquartile mean of curves, and pointwise 95 % intervals.

    Intervals are expanded percentile intervals; whole seeds are resampled.

    Args:
        curves: At the same frames, ``[seeds, points]``.

    Returns:
        The estimate, the lower and the upper ends; with fewer than 5 seeds, the estimate thrice.
    """
    table = as_table(curves)
    middle: Scores = iqm(table, axis=0)
    if len(table) < LEAST_SEEDS["iqm"]:
        return middle, middle, middle
    rows = np.random.default_rng(0).integers(0, len(table), (_CURVE_RESAMPLES, len(table)))
    at_once = max(1, _AT_ONCE // table.size)
    drawn = np.concatenate(
        [iqm(table[rows[n : n + at_once]], axis=1) for n in range(0, _CURVE_RESAMPLES, at_once)]
    )
    outside = (1 - expanded_confidence(len(table), len(table) - 1)) / 2
    low, high = np.quantile(drawn, [outside, 1 - outside], axis=0)
    return middle, low, high


# -- Where a further seed would score, which is not where the middle of all seeds is.

LEAST_TO_PREDICT: Final = 5


def prediction_interval(scores: ArrayLike) -> Interval:
    """Return Student's 95 % prediction interval of a further seed, at least the scores' range.

    Args:
        scores: ``[seeds]``.

    Returns:
        The mean, and the interval; none with fewer than 5 seeds, or all of one score.

    Raises:
        ValueError: If the scores have another shape, or are not finite.
    """
    table = as_table(scores)
    if table.shape[1] != 1:
        raise ValueError(f"scores of {table.shape[1]} tasks: give those of one, [seeds]")
    count, value = len(table), float(table.mean())
    low, high = float(table.min()), float(table.max())
    if count < LEAST_TO_PREDICT or low == high:
        alike = ", all of one score" if count > 1 and low == high else ""
        return Interval(
            value, None, None, f"{plural(count, 'seed')}{alike}: no interval for a further one"
        )
    from scipy.stats import t

    spread = float(table.std(ddof=1)) * math.sqrt(1 + 1 / count)
    reach = float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) * spread
    return Interval(value, min(low, value - reach), max(high, value + reach), "Student's, or range")
