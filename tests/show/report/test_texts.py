"""Texts, axes and characters of reports and charts."""

from __future__ import annotations

import math

import pytest

from hooktrainer.base.axes import ticks
from hooktrainer.show.chart import sparkline
from hooktrainer.show.report.analysis import interval_text, reaching_text
from hooktrainer.show.report.grouping import spread
from hooktrainer.statistics import Interval, time_to_reach


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (Interval(471.26, 466.14, 475.97, ""), "471.3 [466.1, 476.0]"),
        (Interval(0.51234, 0.5, 0.53, ""), "0.512 [0.500, 0.530]"),
        (Interval(12345.6, 11000, 13000.4, ""), "12,346 [11,000, 13,000]"),
        (Interval(500.0, 500.0, 500.0, "exact"), "500 [500, 500]"),
        (Interval(445.33, None, None, "3 seeds"), "445.3 [-]"),
    ],
)
def test_an_interval_has_significant_digits(one, text):
    assert interval_text(one) == text


def test_a_censored_median_is_a_lower_bound():
    def shown(value):
        return f"{value:.0f} s"

    some = time_to_reach([1.0, 2.0, 3.0, 9.0, 9.0, 9.0], [True] * 4 + [False] * 2)
    assert reaching_text(some, shown) == "3 s [1 s, …]"
    few = time_to_reach([1.0, 9.0, 9.0], [True, False, False])
    assert reaching_text(few, shown) == "over 9 s"
    assert reaching_text(time_to_reach([9.0], [False]), shown) == "-"
    assert reaching_text(None, shown) == "-"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], ""),
        ([471.25], "471.2"),
        ([10.0, 20.0, 30.0], "20 ± 10"),
        ([100_000.0, 300_000.0], "200,000 ± 141,421"),
    ],
)
def test_mean_and_deviation_have_two_digits_of_the_deviation(values, text):
    assert spread(values) == text


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 500, ["0", "100", "200", "300", "400", "500"]),
        (3, 19_000, ["0", "5k", "10k", "15k", "20k"]),
        (0, 1.2, ["0", "0.25", "0.50", "0.75", "1.00", "1.25"]),
        (0, 2_000_000, ["0", "500k", "1M", "1.5M", "2M"]),
        (0, 4.9e-6, ["0", "1e-06", "2e-06", "3e-06", "4e-06", "5e-06"]),
        (5, 5, ["2", "3", "4", "5", "6", "7", "8"]),
    ],
)
def test_axes_have_round_numbers(low, high, labels):
    marks, first, last = ticks(low, high, 6)
    assert first <= low <= high <= last
    assert [label for _, label in marks] == labels
    assert len({label for _, label in marks}) == len(marks)


def test_a_sparkline_goes_from_least_to_most():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 7, 7], width=2) == "▁█"
    assert sparkline([0, 3], scale=(0, 7)) == "▁▄"
    assert sparkline([3, 3, math.nan]) == "▁▁"
    assert sparkline([]) == ""
