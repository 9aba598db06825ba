"""The probability of improvement, its test, Holm's correction, seeds needed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hooktrainer.statistics import (
    holm,
    permutation_test,
    probability_of_improvement,
    seeds_to_separate,
)


def test_the_probability_counts_pairs_and_ties_by_half():
    found = probability_of_improvement([3.0, 1.0], [2.0, 1.0])
    assert found.value == (1 + 1 + 0 + 0.5) / 4


def test_complete_separation_of_few_seeds_is_no_certainty():
    five = probability_of_improvement(np.arange(5) + 10.0, np.arange(5.0))
    thirty = probability_of_improvement(np.arange(30) + 100.0, np.arange(30.0))
    assert five.value == thirty.value == 1.0
    assert five.low < 0.75 < 0.9 < thirty.low < five.high == 1.0


def test_one_seed_has_no_interval():
    assert "1 seed" in probability_of_improvement([1.0], [0.0, 0.5]).refused


def test_few_seeds_use_all_permutations():
    """Of 70 ways to divide 8 seeds, two are as far apart as 4 that are all better."""
    scores = np.arange(8.0)
    assert permutation_test(scores[4:], scores[:4]) == pytest.approx(2 / 70)
    assert permutation_test(scores[:4], scores[4:]) == pytest.approx(2 / 70)
    assert permutation_test([1.0] * 4, [1.0] * 4) == 1.0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # SciPy, of groups without overlap
def test_the_statistic_is_brunner_and_munzels():
    random = np.random.default_rng(10)
    one, other = random.normal(0.5, 1, 4), random.normal(0, 2, 6)
    known = stats.permutation_test(
        (one, other), lambda *groups: stats.brunnermunzel(*groups).statistic, n_resamples=np.inf
    )
    assert permutation_test(one, other) == pytest.approx(known.pvalue)


def test_many_seeds_are_permuted_at_random_and_the_p_value_is_near_the_known_one():
    random = np.random.default_rng(2)
    one, other = random.normal(0.7, 1, 20), random.normal(0, 1, 20)
    known = stats.brunnermunzel(one, other).pvalue
    assert permutation_test(one, other) == pytest.approx(known, abs=0.01)
    assert permutation_test(one, other) == permutation_test(one, other)


def test_tasks_are_pooled_in_the_test():
    random = np.random.default_rng(3)
    one, other = random.normal(1.5, 1, (4, 8)), random.normal(0, 1, (4, 8))
    assert permutation_test(one, other) < 0.01
    with pytest.raises(ValueError, match="8 and 5 tasks"):
        permutation_test(one, other[:, :5])


def test_holm_multiplies_the_smallest_most():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_seeds_needed_are_noethers():
    """(1.960 + 0.842)² / (6 · 0.25²), the probability drawn in by 64 / 65: 21.6."""
    one, other = np.repeat([1.0, 1.0, 1.0, 0.0], 2), np.repeat([0.5], 8)
    assert probability_of_improvement(one, other).value == 0.75
    assert seeds_to_separate(one, other) == 22
    assert seeds_to_separate(other, one) == 22
