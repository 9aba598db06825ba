"""Curves, and the mean and spread of several."""

from __future__ import annotations

import math

import numpy as np
from finished_runs import write_run

from hooktrainer.show import Curve, band, read_curves


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
    assert joined.middle.tolist() == [3.0, 6.0, 9.0]  # of 5, 10, 15 and 1, 2, 3
    spread = np.array([4.0, 8.0, 12.0]) / math.sqrt(2)
    np.testing.assert_allclose(joined.high, joined.middle + spread)
    np.testing.assert_allclose(joined.low, joined.middle - spread)
    assert joined.count == 2


def test_long_curves_are_thinned():
    joined = band([Curve.of((n, float(n)) for n in range(5000))])
    assert len(joined.frames) == 400
    assert joined.middle[-1] == 4999.0


def test_only_the_metrics_asked_for_are_read(tmp_path):
    run = write_run(tmp_path / "a")
    assert list(read_curves(run, ["eval/return", "nope"])) == ["eval/return"]
    assert len(read_curves(run)) > 1
