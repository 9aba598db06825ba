"""`judge_regression`: its tests by hand, and how often it errs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from marks import slow_except
from scipy.stats import rankdata

from hooktrainer.statistics import judge_regression

PUBLISHED = [480.0, 494.0, 498.0, 500.0, 500.0, 497.0, 489.0, 500.0, 499.0, 495.0]


def chance_of_less(scores, others):
    """The share of all choices of ranks with no larger a sum, counted one by one."""
    ranks = rankdata([*scores, *others])
    sums = [sum(chosen) for chosen in combinations(ranks, len(scores))]
    return np.mean([value <= ranks[: len(scores)].sum() for value in sums])


@pytest.mark.parametrize("scores", [[470, 475, 479], [480, 489, 494], [480, 494, 500]])
def test_worse_is_decided_by_the_exact_rank_test(scores):
    found = judge_regression(PUBLISHED, scores, looks=(3,), margin=0.1)
    is_worse = chance_of_less(scores, PUBLISHED) <= 0.05
    assert found.verdict == ("worse" if is_worse else "as good")
    assert (found.seeds, found.next_look) == (3, None)
    assert found.limit == pytest.approx(0.9 * 497.0, abs=0.5)


def test_the_error_is_divided_among_the_looks():
    scores = [480, 489, 489]  # a chance of 2.4 %
    assert 0.0125 < chance_of_less(scores, PUBLISHED) < 0.05
    assert judge_regression(PUBLISHED, scores, looks=(3,), margin=1e-9).verdict == "worse"
    found = judge_regression(PUBLISHED, scores, looks=(3, 5, 8, 12), margin=1e-9)
    assert (found.verdict, found.seeds, found.next_look) == (None, 3, 5)


def test_nothing_is_decided_between_looks_or_before_the_first():
    bad = [100.0] * 4
    assert judge_regression(PUBLISHED, bad[:2]).next_look == 3
    assert judge_regression(PUBLISHED, bad[:2]).seeds == 0
    assert judge_regression(PUBLISHED, bad).seeds == 3


def test_fewer_frames_are_better_with_minimize():
    frames = [8_192, 9_216, 10_240, 10_240, 12_288, 15_360, 10_240, 9_216, 11_264, 8_192]
    assert judge_regression(frames, [40_000, 50_000, 60_000], minimize=True).verdict == "worse"
    assert judge_regression(frames, [5_000] * 3, minimize=True).verdict == "as good"


def normal(rng, number):
    return 220 + 15 * rng.standard_normal(number)


def capped(rng, number):
    return 500 - rng.exponential(6, number)


def one_in_ten_fails(rng, number):
    return np.where(rng.random(number) < 0.1, -1.0, 91 + rng.standard_normal(number))


@pytest.mark.parametrize(
    ("draw", "found"),
    slow_except([(normal, 0.75), (capped, 0.99), (one_in_ten_fails, 0.85)], 1),
)
def test_nulls_are_seldom_worse_and_a_loss_is_found(draw, found):
    rng = np.random.default_rng(0)
    verdicts = {0.0: [], 0.1: []}
    for loss, times in ((0.0, 1000), (0.1, 200)):
        for _ in range(times):
            published = draw(rng, 10)
            scores = draw(rng, 12) - loss * abs(np.median(published))
            verdicts[loss].append(judge_regression(published, scores).verdict)
    assert verdicts[0.0].count("worse") <= 50
    assert verdicts[0.1].count("worse") >= 200 * found
    assert verdicts[0.1].count("as good") <= 10


@pytest.mark.parametrize(
    ("published", "margin", "message"),
    [
        ([], 0.1, "0 published seeds cannot show anything"),
        ([1.0], 0.1, "1 published seed cannot show anything, whatever 12 new ones score"),
        ([1.0, float("nan")], 0.1, "scores hold NaN or infinity"),
        ([1.0, 1.0], 0.0, "margin=0.0"),
    ],
)
def test_what_cannot_be_judged_is_refused(published, margin, message):
    with pytest.raises(ValueError, match=message):
        judge_regression(published, [1.0], margin=margin)


def test_two_published_seeds_can_show_a_loss():
    assert judge_regression([480.0, 490.0], [100.0] * 12).verdict == "worse"
