"""Times to a threshold, some of them censored."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hooktrainer.statistics import time_to_reach


def test_the_median_includes_censored_seeds():
    found = time_to_reach([10.0, 20.0, 30.0, 40.0, 50.0], [True, True, True, False, False])
    assert (found.reached, found.seeds, found.median, found.horizon) == (3, 5, 30.0, 40.0)
    assert found.restricted_mean == (10 + 20 + 30 + 40 + 40) / 5


def test_the_estimate_is_kaplan_and_meiers():
    """Also where seeds were watched for different times."""
    random = np.random.default_rng(0)
    times, ends = random.integers(1, 30, 40).astype(float), random.integers(5, 40, 40)
    reached = times <= ends
    seen = np.minimum(times, ends)
    known = stats.ecdf(stats.CensoredData(uncensored=seen[reached], right=seen[~reached])).sf
    found = time_to_reach(seen, reached, horizon=20.0)
    below = np.flatnonzero(known.probabilities <= 0.5)
    assert found.median == known.quantiles[below[0]]
    grid = np.arange(0.0, 20.0, 0.001)
    assert found.restricted_mean == pytest.approx(known.evaluate(grid).sum() * 0.001, abs=0.01)


def test_an_interval_beyond_the_training_time_is_open():
    times = [10.0, 12.0, 14.0, 16.0, 18.0, 50.0, 50.0, 50.0]
    found = time_to_reach(times, [True] * 5 + [False] * 3)
    assert found.median == 16.0
    assert found.low == 10.0
    assert found.high is None


@pytest.mark.parametrize(
    ("times", "reached", "message"),
    [
        ([], [], "seeds"),
        ([1.0], [True, False], "seeds"),
        ([-1.0], [True], "negative"),
        ([float("nan")], [True], "NaN"),
    ],
)
def test_invalid_times_are_refused(times, reached, message):
    with pytest.raises(ValueError, match=message):
        time_to_reach(times, reached)


def test_the_interval_of_the_median_covers_the_truth():
    """200 studies of 10 seeds, of which some three in ten never get there."""
    random = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        times = random.exponential(1.0, 10)
        found = time_to_reach(np.minimum(times, 1.2), times <= 1.2, resamples=500)
        held += found.low <= np.log(2) <= (np.inf if found.high is None else found.high)
    assert 0.90 <= held / 200 <= 0.995
