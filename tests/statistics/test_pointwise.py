"""The band around a curve."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrainer.statistics import curve_interval, interval


def test_each_point_has_its_estimate_and_its_interval():
    random = np.random.default_rng(0)
    curves = random.normal(size=(10, 1)) * [1.0, 5.0, 0.0] + [0.0, 100.0, 7.0]
    middle, low, high = curve_interval(curves)
    assert middle[0] == interval(curves[:, 0]).value
    assert (low <= middle).all()
    assert (middle <= high).all()
    assert (high[1] - low[1]) / (high[0] - low[0]) == pytest.approx(5.0)
    assert low[2] == high[2] == 7.0


def test_a_seed_is_drawn_whole():
    """Curves that are parallel have a band as wide everywhere."""
    curves = np.arange(8.0)[:, None] + np.linspace(0, 100, 5)
    _, low, high = curve_interval(curves)
    np.testing.assert_allclose(high - low, high[0] - low[0])


def test_four_seeds_have_no_band():
    middle, low, high = curve_interval(np.arange(8.0).reshape(4, 2))
    assert middle.tolist() == low.tolist() == high.tolist() == [3.0, 4.0]
