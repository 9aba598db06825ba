"""Performance profiles and normalized scores."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrainer.statistics import Reference, performance_profile

SCORES = np.array([[0.1, 0.9], [0.2, 1.4], [0.3, 0.5], [0.9, 0.6]])


def test_a_profile_counts_the_seeds_above_each_value():
    found = performance_profile(SCORES, [0.0, 0.25, 0.9, 2.0])
    assert found.share.tolist() == [1.0, 6 / 8, 1 / 8, 0.0]
    assert (found.low <= found.share).all()
    assert (found.share <= found.high).all()


def test_its_interval_is_that_of_seeds_drawn_anew_within_each_task():
    random = np.random.default_rng(0)
    scores = random.normal(size=(12, 3))
    found = performance_profile(scores, [0.0, 0.5])
    drawn = [
        (np.take_along_axis(scores, random.integers(0, 12, (12, 3)), 0)[..., None] > [0.0, 0.5])
        for _ in range(2000)
    ]
    low, high = np.quantile(np.mean(drawn, axis=(1, 2)), [0.025, 0.975], axis=0)
    assert found.low == pytest.approx(low, abs=0.03)
    assert found.high == pytest.approx(high, abs=0.03)


def test_normalized_scores():
    pong = Reference(-20.7, 14.6, "Mnih et al. 2015")
    assert pong.normalize([-20.7, 14.6, -3.05]).tolist() == pytest.approx([0.0, 1.0, 0.5])
    with pytest.raises(ValueError, match="high=1 has to be above low=2"):
        Reference(2, 1, "")


def test_where_less_is_better_seeds_below_count_and_the_low_reference_is_one():
    found = performance_profile(SCORES, [0.0, 0.25, 0.9, 2.0], minimize=True)
    assert found.share.tolist() == [0.0, 2 / 8, 5 / 8, 1.0]  # two are 0.9, which is no less
    error = Reference(10.0, 50.0, "ours; random")
    assert error.normalize([10.0, 50.0, 20.0], minimize=True).tolist() == [1.0, 0.0, 0.75]
