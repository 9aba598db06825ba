"""Intervals: rliable's where the estimator is the same, and refused where they cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrainer.statistics import (
    ESTIMATORS,
    difference,
    interval,
    percentile_interval,
    probability_of_improvement,
)
from hooktrainer.statistics.intervals import expanded

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


def test_an_interval_is_wider_than_the_plain_bootstrap_and_the_more_so_the_fewer_seeds():
    assert expanded(5, 4) > expanded(10, 9) > expanded(100, 99) > 0.95
    assert expanded(10**6, 10**6) == pytest.approx(0.95, abs=1e-4)
    assert expanded(10, 9) == pytest.approx(1 - 2 * 0.00855, abs=2e-4)  # t = 2.262


def test_five_seeds_reach_from_the_worst_to_the_best():
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
def test_seeds_of_one_score_need_to_be_many_to_mean_it(estimator, enough):
    """0.75 ** 11 and 0.5 ** 5 are the first powers below 5 %."""
    found = interval([500.0] * enough, estimator)
    assert (found.low, found.high, found.refused) == (500.0, 500.0, None)
    assert f"below {enough}" in interval([500.0] * (enough - 1), estimator).refused


def test_seeds_of_one_score_never_bound_the_mean():
    assert "all of one score" in interval([500.0] * 100, "mean").refused


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
def test_what_is_no_table_of_scores_is_refused(scores, message):
    with pytest.raises(ValueError, match=message):
        interval(scores)


@pytest.mark.parametrize("shape", ["normal", "skewed", "two humps"])
def test_intervals_of_ten_seeds_hold_the_truth(shape):
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
