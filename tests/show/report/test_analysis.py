"""The analysis of a report, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hooktrainer.errors import ConfigError
from hooktrainer.show import SeedCurve, Study, TaskStudy, analyze
from hooktrainer.statistics import Curve, Reference, interval, permutation_test


def seeds(finals, first=0):
    """Runs that were evaluated at 100 and 200 frames, 0 and what is given, 1 second a frame."""
    clock = Curve.of([(0, 0.0), (200, 200.0)])
    return {
        seed: SeedCurve(Path(f"run{seed}"), Curve.of([(100, 0.0), (200, final)]), False, clock)
        for seed, final in enumerate(finals, start=first)
    }


def task(name="A", threshold=None, **groups):
    return TaskStudy(name, 200.0, {n: seeds(finals) for n, finals in groups.items()}, threshold)


def report(*tasks, **options):
    return analyze(Study("eval/return", tasks, []), **options)


RANDOM = np.random.default_rng(0)
GOOD, BAD = RANDOM.normal(100, 10, 12), RANDOM.normal(50, 10, 12)


def test_the_estimates_are_those_of_the_seeds():
    (section,) = report(task(good=GOOD))
    (group,) = section.groups
    assert (group.group, list(group.seeds)) == ("good", list(range(12)))
    assert group.iqm == interval(GOOD)
    assert group.median == interval(GOOD, "median")
    assert group.mean.refused == "12 seeds: no interval for the mean"
    assert group.area.value == pytest.approx(group.iqm.value / 2)
    assert section.comparisons == []


def test_the_better_one_is_named_and_comes_first():
    (section,) = report(task(bad=BAD, good=GOOD))
    assert [group.group for group in section.groups] == ["good", "bad"]
    (one,) = section.comparisons
    assert one.separated
    assert one.verdict == "good is better than bad"
    assert one.difference.low > 0
    assert one.improvement.value == 1.0
    assert one.p == one.corrected == permutation_test(GOOD, BAD)


def test_three_seeds_are_refused_with_the_number_needed():
    (section,) = report(task(a=[10.0, 12.0, 14.0], b=[9.0, 11.0, 13.5]))
    assert section.notes == ["3 seeds: no interval for the interquartile mean"]
    assert all(group.iqm.low is None for group in section.groups)
    (one,) = section.comparisons
    assert one.difference.low is None
    assert not one.separated
    # 6 of 9 pairs: (1.960 + 0.842)² / (6 · (1/6 · 0.9)²) = 58.1 seeds
    assert one.verdict == "about 56 more seeds each would separate a from b"


def test_one_seed_each_gives_no_number_of_seeds():
    (section,) = report(task(a=[10.0], b=[9.0]))
    (one,) = section.comparisons
    assert one.verdict == "a and b are not separated: one seed shows no spread"


def test_more_than_two_are_corrected_by_holm():
    third = RANDOM.normal(52, 10, 12)
    (section,) = report(task(good=GOOD, bad=BAD, third=third))
    assert len(section.comparisons) == 3
    lowest = min(section.comparisons, key=lambda one: one.p)
    assert lowest.corrected == pytest.approx(3 * lowest.p)
    assert all(one.corrected >= one.p for one in section.comparisons)


def test_all_groups_can_be_compared_with_one():
    third = RANDOM.normal(52, 10, 12)
    (section,) = report(task(good=GOOD, bad=BAD, third=third), against="bad")
    assert all("bad" in (one.first, one.second) for one in section.comparisons)
    assert len(section.comparisons) == 2
    with pytest.raises(ConfigError, match="no group 'best'; there are bad, good"):
        report(task(good=GOOD, bad=BAD), against="best")


def test_seeds_below_the_threshold_are_censored():
    (section,) = report(task(threshold=60.0, a=[50.0, 70.0, 80.0, 55.0, 90.0]))
    (group,) = section.groups
    frames, seconds = group.frames_to_threshold, group.seconds_to_threshold
    assert (frames.reached, frames.seeds, frames.horizon) == (3, 5, 200.0)
    assert (frames.median, seconds.median) == (200.0, 200.0)
    (other,) = report(task(threshold=60.0, a=[50.0, 70.0]), threshold=75.0)
    assert other.threshold == 75.0
    assert other.groups[0].frames_to_threshold.reached == 0


def test_tasks_are_pooled_on_normalized_scores():
    references = {"A": Reference(0, 100, ""), "B": Reference(0, 10, "")}
    tasks = task("A", good=GOOD, bad=BAD), task("B", good=GOOD / 10, bad=BAD / 10)
    *single, together = report(*tasks, references=references)
    assert [section.task for section in single] == ["A", "B"]
    assert together.task == "all tasks, normalized"
    assert [group.group for group in together.groups] == ["good", "bad"]
    np.testing.assert_allclose(together.groups[0].scores, np.stack([GOOD, GOOD], 1) / 100)
    assert together.groups[0].iqm.low is not None
    assert len(report(*tasks)) == 2  # without references, nothing over tasks


@pytest.mark.parametrize("first", ["A", "B"])
def test_groups_that_a_task_lacks_are_left_out_of_the_pool_and_named(first):
    references = {"A": Reference(0, 100, ""), "B": Reference(0, 10, "")}
    tasks = [task("A", good=GOOD, bad=BAD), task("B", good=GOOD / 10)]
    *_, together = report(*(tasks if first == "A" else tasks[::-1]), references=references)
    assert [group.group for group in together.groups] == ["good"]
    assert "bad is left out: it has no runs of B" in together.notes


def minimized(*tasks, **options):
    return analyze(Study("eval/error", tasks, [], minimize=True), **options)


def test_minimize_mirrors_everything():
    third = RANDOM.normal(52, 10, 12)
    (up,) = report(task(a=GOOD, b=BAD, c=third), score="best", threshold=90.0)
    mirrored = {"a": -GOOD, "b": -BAD, "c": -third}
    (down,) = minimized(task(**mirrored), score="best", threshold=-90.0)
    assert [g.group for g in up.groups] == [g.group for g in down.groups]
    for more, less in zip(up.groups, down.groups, strict=True):
        np.testing.assert_array_equal(more.scores, -less.scores)
        assert more.frames_to_threshold == less.frames_to_threshold
        np.testing.assert_allclose(more.profile.share, less.profile.share[::-1])
    for more, less in zip(up.comparisons, down.comparisons, strict=True):
        assert (more.verdict, more.p) == (less.verdict, less.p)
        assert more.improvement == less.improvement
        assert more.difference.value == pytest.approx(-less.difference.value)


def test_more_is_always_better_of_normalized_scores():
    references = {"A": Reference(0, 100, ""), "B": Reference(0, 10, "")}
    tasks = task("A", high=GOOD, low=BAD), task("B", high=GOOD / 10, low=BAD / 10)
    *_, together = minimized(*tasks, references=references)
    assert not together.minimize
    assert [group.group for group in together.groups] == ["low", "high"]
    np.testing.assert_allclose(together.groups[0].scores, 1 - np.stack([BAD, BAD], 1) / 100)
    assert together.comparisons[0].verdict == "low is better than high"


def test_minimize_reaches_the_threshold_from_above():
    (section,) = minimized(task(a=[-50.0, -70.0, -80.0, -55.0, 90.0]), threshold=-60.0)
    assert section.groups[0].frames_to_threshold.reached == 2
    (section,) = minimized(task(a=[-50.0, 1.0]), threshold=0.0)
    assert section.groups[0].frames_to_threshold.restricted_mean == 100.0  # 0 is enough
