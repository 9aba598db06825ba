"""Where a further seed would score."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrainer.statistics import further_seed, interval


def test_it_is_students_interval_for_one_more():
    found = further_seed([1.0, 2.0, 3.0, 4.0, 5.0])
    reach = 2.7764451 * np.sqrt(2.5) * np.sqrt(1 + 1 / 5)  # t of 4 degrees, deviation, one more
    assert found.value == 3.0
    assert found.low == pytest.approx(3 - reach, abs=1e-6)
    assert found.high == pytest.approx(3 + reach, abs=1e-6)


def test_it_reaches_to_the_worst_and_the_best():
    scores = [500.0] * 29 + [0.0]
    found = further_seed(scores)
    reach = 2.0452296 * 500 * np.sqrt(1 / 30) * np.sqrt(1 + 1 / 30)
    assert 500 * 29 / 30 - reach > 0
    assert (found.low, found.high) == (0.0, pytest.approx(500 * 29 / 30 + reach))


def test_a_further_seed_is_in_it_in_95_of_100_studies():
    random = np.random.default_rng(0)
    held = [
        found.low <= scores[-1] <= found.high
        for scores in random.normal(size=(2000, 11))
        for found in [further_seed(scores[:-1])]
    ]
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


def test_it_is_wider_than_that_of_the_middle():
    scores = np.random.default_rng(0).normal(size=50)
    one, middle = further_seed(scores), interval(scores)
    assert one.high - one.low > 3 * (middle.high - middle.low)


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ([1.0], "1 seed: no interval for a further one"),
        ([1.0, 2.0, 3.0, 4.0], "4 seeds: no interval for a further one"),
        ([500.0] * 10, "10 seeds, all of one score: no interval for a further one"),
    ],
)
def test_too_few_or_all_alike_say_nothing(scores, why):
    found = further_seed(scores)
    assert found.refused == why
    assert found.high is None


def test_several_tasks_are_refused():
    with pytest.raises(ValueError, match="scores of 2 tasks"):
        further_seed(np.zeros((5, 2)))
