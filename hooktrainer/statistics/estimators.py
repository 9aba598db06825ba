"""What many scores are summed up by: interquartile mean, mean, median."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
