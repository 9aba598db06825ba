"""Curves, groups of runs, and their mean and spread."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "cli"))

from finished_runs import write_run

from hooktrainer.show.report import Curve, band, group_runs, read_curves, summarize
from hooktrainer.show.report.curves import differing
from hooktrainer.show.report.page import spread
from hooktrainer.store.run_dir import RunDir


def test_a_curve_rises_in_frames_and_is_finite():
    curve = Curve.of([(200, 2.0), (100, 1.0), (300, math.nan), (200, 5.0)])
    assert curve.frames.tolist() == [100, 200]
    assert curve.values.tolist() == [1.0, 5.0]  # of one place, the last
    assert curve.best() == (200, 5.0)
    assert curve.best(minimize=True) == (100, 1.0)
    assert Curve.of([]).best() is None


def test_a_band_is_over_the_frames_that_all_have_reached():
    one = Curve.of([(0, 0.0), (100, 10.0), (200, 20.0)])
    other = Curve.of([(50, 1.0), (100, 2.0), (150, 3.0)])
    joined = band([one, other])
    assert joined.frames.tolist() == [50, 100, 150]
    assert joined.mean.tolist() == [3.0, 6.0, 9.0]  # of 5, 10, 15 and 1, 2, 3
    np.testing.assert_allclose(joined.std, np.array([4.0, 8.0, 12.0]) / math.sqrt(2))
    assert joined.count == 2


def test_a_single_curve_has_no_spread():
    joined = band([Curve.of([(0, 1.0), (100, 2.0)])])
    assert joined.std.tolist() == [0.0, 0.0]


def test_long_curves_are_thinned():
    joined = band([Curve.of((n, float(n)) for n in range(5000))])
    assert len(joined.frames) == 400
    assert joined.mean[-1] == 4999.0


def test_runs_that_differ_only_by_seed_and_place_are_a_group(tmp_path):
    runs = [
        write_run(
            tmp_path / f"{lr}_{seed}",
            seed=seed,
            options={"lr": lr, "run_dir": f"{seed}", "workers": 2 * seed},
        )
        for lr in (0.1, 0.01)
        for seed in (0, 1)
    ]
    groups = group_runs([summarize(run) for run in runs])
    assert [group.label for group in groups] == ["toy lr=0.1", "toy lr=0.01"]
    assert [len(group.runs) for group in groups] == [2, 2]
    assert groups[0].finals() == [20.0, 20.0]


def test_experiments_are_groups_of_their_own(tmp_path):
    runs = [write_run(tmp_path / name, experiment=name) for name in ("a", "b")]
    assert [group.label for group in group_runs([summarize(run) for run in runs])] == ["a", "b"]


def test_only_the_metrics_asked_for_are_read(tmp_path):
    run = write_run(tmp_path / "a")
    assert list(read_curves(run, ["eval/return", "nope"])) == ["eval/return"]
    assert len(read_curves(run)) > 1


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], ""),
        ([471.25], "471.25"),
        ([500.0, 500.0], "500 ± 0"),
        ([10.0, 20.0, 30.0], "20 ± 10"),
        ([2.0, 2.5], "2.25 ± 0.35"),
        ([100_000.0, 300_000.0], "200,000 ± 141,421"),
    ],
)
def test_mean_and_deviation_have_two_digits_of_the_deviation(values, text):
    assert spread(values) == text


def test_only_options_that_differ_within_an_experiment_are_told(tmp_path):
    made = [
        write_run(tmp_path / "a1", experiment="a", options={"lr": 0.1, "clip": 0.2}),
        write_run(tmp_path / "a2", experiment="a", options={"lr": 0.2, "clip": 0.2, "trace": 3}),
        write_run(tmp_path / "b", experiment="b", options={"tau": 0.01}),
    ]
    runs = [summarize(run) for run in made]
    assert differing(runs) == ["lr"]
    assert [group.label for group in group_runs(runs)] == ["a lr=0.1", "a lr=0.2", "b"]


def test_a_run_that_ended_before_it_wrote_its_options_differs_in_none(tmp_path):
    begun = RunDir.create(tmp_path / "begun", experiment="toy")
    assert differing([summarize(begun), summarize(write_run(tmp_path / "a"))]) == []
