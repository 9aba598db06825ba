"""From curves to scores."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrainer.statistics import SCORES, Curve, first_reached, score_named, shared_frames

CURVE = Curve.of([(100, 0.0), (200, 10.0), (300, 30.0), (400, 20.0)])


@pytest.mark.parametrize(
    ("name", "frames", "value"),
    [
        ("last", 400, 20.0),
        ("last", 250, 20.0),  # halfway from 10 to 30
        ("last", 1000, 20.0),  # a run that ended keeps its last value
        ("best", 400, 30.0),
        ("best", 250, 10.0),
        ("best", 50, 0.0),
        ("area", 300, (5.0 + 20.0) / 2),
        ("area", 200, 5.0),
        ("area", 100, 0.0),
        ("area", 600, (500 + 2000 + 2500 + 4000) / 500),
        ("tail", 400, (24.0 + 20.0) / 2),  # from 360 frames on
    ],
)
def test_scores(name, frames, value):
    assert SCORES[name](CURVE, frames) == pytest.approx(value)


def test_runs_are_compared_at_the_frames_they_share():
    longer = Curve.of([(100, 0.0), (800, 10.0)])
    assert shared_frames([CURVE, longer], [False, False]) == 400


def test_a_run_that_solved_its_task_does_not_hold_the_others_back():
    longer = Curve.of([(100, 0.0), (800, 10.0)])
    assert shared_frames([CURVE, longer], [True, False]) == 800
    assert shared_frames([CURVE, longer], [True, True]) == 800
    with pytest.raises(ValueError, match="empty"):
        shared_frames([], [])


def test_when_a_threshold_was_first_reached():
    assert first_reached(CURVE, 10.0, 400) == 200
    assert first_reached(CURVE, 25.0, 400) == 300
    assert first_reached(CURVE, 25.0, 250) is None
    assert first_reached(CURVE, 31.0, 400) is None


def test_a_curve_of_one_point():
    one = Curve.of([(100, 7.0)])
    assert {name: score(one, 100) for name, score in SCORES.items()} == dict.fromkeys(SCORES, 7.0)
    assert np.isfinite(SCORES["area"](one, 500))


def test_where_less_is_better_the_best_evaluation_is_the_lowest():
    falling = Curve.of([(100, 9.0), (200, 3.0), (300, 5.0), (400, 4.0)])
    found = {name: score_named(name, minimize=True)(falling, 400) for name in SCORES}
    # from 360 frames on 4.4 to 4; the area over 300 frames (6 + 4 + 4.5) / 3
    assert found == pytest.approx({"last": 4.0, "tail": 4.2, "best": 3.0, "area": 14.5 / 3})
    assert score_named("best")(falling, 400) == 9.0
    assert first_reached(falling, 5.0, 400, minimize=True) == 200
    assert first_reached(falling, 3.0, 400, minimize=True) == 200  # enough, though not less
    assert first_reached(falling, 2.9, 400, minimize=True) is None
