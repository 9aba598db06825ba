"""95 % intervals by the stratified bootstrap, and where there can be none.

Seeds are drawn anew within each task, as Agarwal et al. (2021) do. With few seeds the plain
bootstrap promises 95 % and keeps 80 to 91: it sees too little spread. So its quantiles are taken
further out, by what Student's t and n / (n - 1) ask for (Hesterberg 2015, "expanded percentiles"),
of BCa intervals where these are defined, else of percentile intervals. What is kept of the promise
then is in docs/statistics.md, for every estimator, number of seeds and shape; where it is too
little, the interval is refused.
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
"""Seeds below which there is no interval, of a single task. A mean hangs on how bad the rare bad
seed is, and few seeds show none."""
LEAST_OF_SEVERAL: Final = 3
"""Seeds a task below which there is none but for a mean, of tasks with 10 seeds in all or more."""
_WHOLE_RANGE = 6  # below so many seeds, the middle is outside all of them in 1 of 2 ** (n - 1)
_AT_ONCE = 4_000_000  # numbers drawn at a time


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval.

    Attributes:
        value: The estimate.
        low: Lower end; ``None`` if there is no interval.
        high: Upper end; likewise.
        method: How it was made; what is wrong, if there is none.
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
    """Estimate, with a 95 % interval where one can be given.

    Args:
        scores: ``[seeds]``, or ``[seeds, tasks]`` on one scale.
        estimator: A name of `ESTIMATORS`.
        resamples: How often seeds are drawn anew.
        seed: Of the drawing.

    Raises:
        ValueError: If the scores are no such table, or hold what is not finite.
    """
    table = as_table(scores)
    count, tasks = table.shape
    value = float(ESTIMATORS[estimator](table, axis=None))
    if (why := _refusal(table, estimator)) is not None:
        return Interval(value, None, None, why)
    if _unanimous(table):
        return Interval(value, value, value, "exact")
    if tasks == 1 and count < _WHOLE_RANGE:
        return Interval(value, float(table.min()), float(table.max()), "range")
    low, high, method = _bootstrap(
        [table], lambda table: ESTIMATORS[estimator](table, axis=-1), resamples, seed
    )
    if estimator == "mean":  # its tails are longer than the bootstrap's
        from scipy.stats import t

        spread = math.sqrt(float(table.var(axis=0, ddof=1).sum()) / count) / tasks
        reach = float(t.ppf((1 + CONFIDENCE) / 2, tasks * (count - 1))) * spread
        low, high, method = min(low, value - reach), max(high, value + reach), f"{method}, or t"
    return Interval(value, low, high, method)


def difference(
    scores: ArrayLike,
    others: ArrayLike,
    estimator: str = "iqm",
    *,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """How much more one has than the other, with a 95 % interval where one can be given.

    Args:
        scores: ``[seeds]`` or ``[seeds, tasks]``.
        others: Likewise, of the same tasks; the seeds are others, or as many others as there are.
        estimator: As for `interval`; so the rest.
        resamples: How often.
        seed: Of the drawing.

    Raises:
        ValueError: As `interval`, or if the numbers of tasks differ.
    """
    tables = [as_table(scores), as_table(others)]
    if tables[0].shape[1] != tables[1].shape[1]:
        raise ValueError(f"{tables[0].shape[1]} and {tables[1].shape[1]} tasks cannot be compared")
    estimate = ESTIMATORS[estimator]
    value = float(estimate(tables[0], axis=None) - estimate(tables[1], axis=None))
    if why := next(filter(None, (_refusal(table, estimator) for table in tables)), None):
        return Interval(value, None, None, why)
    if all(map(_unanimous, tables)):
        return Interval(value, value, value, "exact")
    low, high, method = _bootstrap(
        tables,
        lambda table, other: estimate(table, axis=-1) - estimate(other, axis=-1),
        resamples,
        seed,
    )
    return Interval(value, low, high, method)


def percentile_interval(
    distribution: ArrayLike, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The plain percentile interval of a bootstrap distribution, linear between its points.

    Args:
        distribution: The estimates from the resamples.
        confidence: How much of it lies between.
    """
    outside = (1 - confidence) / 2
    low, high = np.quantile(np.asarray(distribution, np.float64), [outside, 1 - outside])
    return float(low), float(high)


def expanded(count: int, freedom: int) -> float:
    """The confidence at which a bootstrap interval of few seeds is taken, to be a 95 % interval.

    Args:
        count: Seeds of a task, in the smaller of two groups.
        freedom: Degrees of freedom, of all tasks and groups.
    """
    from scipy.stats import norm, t

    reach = math.sqrt(count / (count - 1)) * float(t.ppf((1 + CONFIDENCE) / 2, freedom))
    return 1 - 2 * float(norm.sf(reach))


def _bootstrap(
    tables: list[Scores], estimate: Any, resamples: int, seed: int
) -> tuple[float, float, str]:
    """Interval of an estimate of one or several tables, each task of each a stratum."""
    import warnings

    from scipy.stats import DegenerateDataWarning, bootstrap

    strata = [column for table in tables for column in table.T]
    edges = np.cumsum([table.shape[1] for table in tables])[:-1].tolist()
    size = sum(table.size for table in tables)

    def of_strata(*drawn: Any, axis: int = -1) -> Any:
        starts, ends = [0, *edges], [*edges, len(drawn)]
        pooled = [
            np.concatenate(drawn[start:end], axis=-1)
            for start, end in zip(starts, ends, strict=True)
        ]
        return estimate(*pooled)

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
                confidence_level=expanded(fewest, freedom),
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
    """Why scores allow no interval; ``None`` if they do."""
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
    """How many seeds of one score show that the estimate is that score.

    If a share p of all seeds scores it, n seeds do so with probability p^n: at 95 %, the share is
    0.05^(1/n) or more. From a half on it is the median, from three quarters on the interquartile
    mean, whatever the others score; the mean it never is for sure.
    """
    share = {"median": 0.5, "iqm": 0.75}.get(estimator)
    return None if share is None else math.ceil(math.log(1 - CONFIDENCE) / math.log(share))


Scores = NDArray[np.float64]
Estimator = Callable[..., Any]
"""Called with scores and ``axis=``, along which it sums up."""


def iqm(scores: ArrayLike, axis: int | None = None) -> Any:
    """Interquartile mean: the mean of the scores without their lowest and highest quarter.

    Few bad seeds do not move it as they do the mean, and it needs fewer seeds than the median
    (Agarwal et al. 2021). Of several tasks, all scores are put together before they are cut.
    """
    from scipy.stats import trim_mean

    return trim_mean(scores, 0.25, axis=axis)


ESTIMATORS: Final[Mapping[str, Estimator]] = {"iqm": iqm, "mean": np.mean, "median": np.median}
"""By name; each takes scores, and ``axis=``."""
NAMES: Final = {"iqm": "interquartile mean", "mean": "mean", "median": "median"}
"""What people call them."""


def as_table(scores: ArrayLike) -> Scores:
    """Scores as ``float64 [seeds, tasks]``.

    Args:
        scores: That, or ``[seeds]`` of a single task.

    Raises:
        ValueError: If it is no such table, is empty, or holds what is not finite.
    """
    table = np.asarray(scores, np.float64)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or not table.size:
        raise ValueError(f"scores are [seeds] or [seeds, tasks], not {list(table.shape)}")
    if not np.isfinite(table).all():
        raise ValueError("scores hold NaN or infinity: a seed without a score has to be left out")
    return table


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


# -- Where a further seed would score, which is not where the middle of all seeds is.

LEAST_TO_PREDICT: Final = 5


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
    if count < LEAST_TO_PREDICT or low == high:
        alike = ", all of one score" if count > 1 and low == high else ""
        return Interval(
            value, None, None, f"{plural(count, 'seed')}{alike}: no interval for a further one"
        )
    from scipy.stats import t

    spread = float(table.std(ddof=1)) * math.sqrt(1 + 1 / count)
    reach = float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) * spread
    return Interval(value, min(low, value - reach), max(high, value + reach), "Student's, or range")
