"""Estimates and intervals, and where an interval is refused."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import patch

import numpy as np
import pytest
from marks import slow_except
from scipy import stats

from hooktrainer.statistics import (
    ESTIMATORS,
    curve_interval,
    difference,
    interval,
    percentile_interval,
    prediction_interval,
    probability_of_improvement,
)

SCORES = np.array(
    [
        [0.1, 29.9, -27.4],
        [-89.1, -45.5, -99.2],
        [6.0, 134.0, -49.2],
        [-62.0, 49.0, 35.7],
        [10.5, -93.0, -2.9],
        [69.5, -134.4, -45.8],
        [-190.1, -129.0, -184.2],
        [-23.5, -126.7, 27.1],
        [15.7, -18.7, -251.7],
        [-53.9, -4.9, 11.3],
    ]
)
OTHERS = np.array([[12.0, 80.5, -3.0], [44.0, -60.0, 7.5], [-9.5, 15.0, 90.0], [31.0, 2.0, -41.0]])
# Computed once by rliable 1.2.0 (its intervals with 500 resamples, after numpy.random.seed(3)).
RLIABLE_IQM = -30.5
RLIABLE_MEAN = -41.41333333333333
RLIABLE_IMPROVEMENT = 0.2833333333333334
RLIABLE_INTERVALS = {
    "iqm": (-62.35499999999999, -3.661250000000001),
    "mean": (-68.74175, -13.252416666666665),
}


def test_estimates_are_rliables():
    found = {name: float(estimate(SCORES, axis=None)) for name, estimate in ESTIMATORS.items()}
    assert found["iqm"] == pytest.approx(RLIABLE_IQM, abs=1e-9)
    assert found["mean"] == pytest.approx(RLIABLE_MEAN, abs=1e-9)
    improvement = probability_of_improvement(SCORES, OTHERS)
    assert improvement.value == pytest.approx(RLIABLE_IMPROVEMENT, abs=1e-9)


@pytest.mark.parametrize("name", ["iqm", "mean"])
def test_percentile_intervals_are_rliables_on_the_same_resamples(name):
    random = np.random.RandomState(3)
    drawn = [
        ESTIMATORS[name](np.take_along_axis(SCORES, random.choice(10, (10, 3)), 0), axis=None)
        for _ in range(500)
    ]
    assert percentile_interval(drawn) == pytest.approx(RLIABLE_INTERVALS[name], abs=1e-9)


def test_tasks_are_strata():
    """A task that scores 1,000 more than the other does not widen the interval of the mean."""
    random = np.random.default_rng(0)
    scores = random.normal(size=(30, 2))
    apart = interval(scores + np.array([0, 1000]), "mean")
    together = interval(scores, "mean")
    assert apart.high - apart.low == pytest.approx(together.high - together.low, rel=1e-6)


def test_the_interval_of_five_seeds_is_their_range():
    for name, value in (("median", 3.0), ("iqm", 3.0)):
        found = interval([1.0, 2.0, 3.0, 4.0, 10.0], name)
        assert (found.value, found.low, found.high) == (value, 1.0, 10.0)
    assert interval([0.0, 100.0, 101.0, 102.0, 103.0]).low == 0.0


@pytest.mark.parametrize(
    ("seeds", "estimator", "message"),
    [
        (3, "iqm", "3 seeds: no interval for the interquartile mean"),
        (4, "median", "4 seeds: no interval for the median"),
        (1, "iqm", "one seed shows no spread: an interval takes 5 seeds or more"),
        (29, "mean", "29 seeds: no interval for the mean"),
    ],
)
def test_too_few_seeds_are_refused_and_the_estimate_stays(seeds, estimator, message):
    scores = np.arange(seeds, dtype=float)
    found = interval(scores, estimator)
    assert found.value == scores.mean()
    assert (found.low, found.high) == (None, None)
    assert found.refused.startswith(message)


def test_several_tasks_need_fewer_seeds_of_each():
    scores = np.random.default_rng(0).normal(size=(3, 10))
    assert interval(scores).refused is None
    assert interval(scores[:2]).refused.startswith("2 seeds in each of 10 tasks")
    assert interval(scores, "median").refused is None
    assert interval(np.tile(scores, (5, 1)), "mean").refused.startswith("15 seeds in each of 10")
    assert interval(scores[:, :2]).refused.startswith("3 seeds in each of 2 tasks")


@pytest.mark.parametrize(("estimator", "enough"), [("iqm", 11), ("median", 5)])
def test_equal_scores_need_many_seeds_for_an_interval(estimator, enough):
    """0.75 ** 11 and 0.5 ** 5 are the first powers below 5 %."""
    found = interval([500.0] * enough, estimator)
    assert (found.low, found.high, found.refused) == (500.0, 500.0, None)
    assert f"below {enough}" in interval([500.0] * (enough - 1), estimator).refused


def test_nearly_all_of_one_score_have_an_interval():
    """BCa has none here, its acceleration being undefined; the percentile interval is taken."""
    found = interval([500.0] * 9 + [300.0])
    assert found.low < found.value == found.high == 500.0


def test_a_difference_of_two():
    random = np.random.default_rng(0)
    a, b = random.normal(3, 1, 20), random.normal(0, 1, 12)
    found = difference(a, b)
    assert found.low < 3 < found.high
    assert found.low > 0
    assert found.value == interval(a).value - interval(b).value
    assert difference(a, b[:3]).refused.startswith("3 seeds: no interval")
    assert difference([1.0] * 11, [3.0] * 11).low == -2.0


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1.0, float("nan")], "NaN"),
        ([], "not \\[0, 1\\]"),
        (np.zeros((2, 2, 2)), "not \\[2, 2, 2\\]"),
    ],
)
def test_invalid_scores_are_refused(scores, message):
    with pytest.raises(ValueError, match=message):
        interval(scores)


@pytest.mark.parametrize("shape", slow_except(["normal", "skewed", "two humps"], 1))
def test_intervals_of_ten_seeds_cover_the_truth(shape):
    """200 studies of each shape; 92 to 97 % over 1,000 are in docs/statistics.md."""
    random = np.random.default_rng(5)
    draw = {
        "normal": lambda size: random.normal(size=size),
        "skewed": lambda size: random.lognormal(sigma=0.5, size=size),
        "two humps": lambda size: random.normal(size=size) + 5 * (random.random(size) < 0.5),
    }[shape]
    truth = ESTIMATORS["iqm"](draw(400_000), axis=None)
    found = [interval(draw(10), resamples=500) for _ in range(200)]
    held = np.mean([one.low <= truth <= one.high for one in found])
    assert 0.90 <= held <= 0.995


def test_names_and_the_report_load_neither_scipy_nor_torch():
    """Where a statistic is computed SciPy is loaded, where it is only named it is not."""
    program = (
        "import sys, hooktrainer, hooktrainer.statistics as s\n"
        "s.interval, s.decide, s.ESTIMATORS\n"
        "import hooktrainer.show.report.report_page, hooktrainer.cli.report\n"
        "print([name for name in ('scipy', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_each_point_has_its_estimate_and_its_interval():
    random = np.random.default_rng(0)
    curves = random.normal(size=(10, 1)) * [1.0, 5.0, 0.0] + [0.0, 100.0, 7.0]
    middle, low, high = curve_interval(curves)
    assert middle[0] == interval(curves[:, 0]).value
    assert (low <= middle).all()
    assert (middle <= high).all()
    assert (high[1] - low[1]) / (high[0] - low[0]) == pytest.approx(5.0)
    assert low[2] == high[2] == 7.0


def test_the_prediction_interval_is_students():
    found = prediction_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    reach = 2.7764451 * np.sqrt(2.5) * np.sqrt(1 + 1 / 5)  # t of 4 degrees, deviation, one more
    assert found.value == 3.0
    assert found.low == pytest.approx(3 - reach, abs=1e-6)
    assert found.high == pytest.approx(3 + reach, abs=1e-6)


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ([1.0], "1 seed: no interval for a further one"),
        ([1.0, 2.0, 3.0, 4.0], "4 seeds: no interval for a further one"),
        ([500.0] * 10, "10 seeds, all of one score: no interval for a further one"),
    ],
)
def test_too_few_or_equal_scores_have_no_prediction(scores, why):
    found = prediction_interval(scores)
    assert found.refused == why
    assert found.high is None


def test_fewer_seeds_widen_the_interval():
    with patch.object(stats, "bootstrap", wraps=stats.bootstrap) as bootstrap:
        for count in (8, 10, 1000):
            interval(range(count))
    few, ten, many = (call.kwargs["confidence_level"] for call in bootstrap.call_args_list)
    assert few > ten > many > 0.95
    assert ten == pytest.approx(1 - 2 * 0.00855, abs=2e-4)  # t = 2.262
    assert many == pytest.approx(0.95, abs=1e-3)
