"""Scores of curves, reference scores, performance profiles."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from hooktrainer.statistics import (
    REFERENCES,
    SCORES,
    Curve,
    Reference,
    first_reached,
    performance_profile,
    score_function,
    shared_frames,
)

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


def test_a_solved_run_does_not_limit_the_others():
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


def test_where_less_is_better_the_best_evaluation_is_the_lowest():
    falling = Curve.of([(100, 9.0), (200, 3.0), (300, 5.0), (400, 4.0)])
    found = {name: score_function(name, minimize=True)(falling, 400) for name in SCORES}
    # from 360 frames on 4.4 to 4; the area over 300 frames (6 + 4 + 4.5) / 3
    assert found == pytest.approx({"last": 4.0, "tail": 4.2, "best": 3.0, "area": 14.5 / 3})
    assert score_function("best")(falling, 400) == 9.0
    assert first_reached(falling, 5.0, 400, minimize=True) == 200
    assert first_reached(falling, 3.0, 400, minimize=True) == 200  # enough, though not less
    assert first_reached(falling, 2.9, 400, minimize=True) is None


def test_upper_references_of_gymnasium_are_its_reward_thresholds():
    for env in ("Acrobot-v1", "MountainCarContinuous-v0", "LunarLander-v3", "BipedalWalker-v3"):
        assert REFERENCES[env].high == gym.spec(env).reward_threshold


TABLE = np.array([[0.1, 0.9], [0.2, 1.4], [0.3, 0.5], [0.9, 0.6]])


def test_a_profile_counts_the_seeds_above_each_value():
    found = performance_profile(TABLE, [0.0, 0.25, 0.9, 2.0])
    assert found.share.tolist() == [1.0, 6 / 8, 1 / 8, 0.0]
    assert (found.low <= found.share).all()
    assert (found.share <= found.high).all()


def test_normalized_scores():
    pong = Reference(-20.7, 14.6, "Mnih et al. 2015")
    assert pong.normalize([-20.7, 14.6, -3.05]).tolist() == pytest.approx([0.0, 1.0, 0.5])
    with pytest.raises(ValueError, match="high=1 has to be above low=2"):
        Reference(2, 1, "")
