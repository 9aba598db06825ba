"""Plots of characters, and the marks along an axis."""

from __future__ import annotations

import math

import pytest

from hooktrainer.show.chart import ticks
from hooktrainer.show.report.terminal import plot_lines, sparkline


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 500, ["0", "100", "200", "300", "400", "500"]),
        (3, 19_000, ["0", "5k", "10k", "15k", "20k"]),
        (-0.02, 0.31, ["-0.1", "0", "0.1", "0.2", "0.3", "0.4"]),
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0, 1.2, ["0", "0.25", "0.50", "0.75", "1.00", "1.25"]),
        (0, 12, ["0", "2.5", "5.0", "7.5", "10.0", "12.5"]),
        (0.01, 0.09, ["0", "0.02", "0.04", "0.06", "0.08", "0.10"]),
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
    assert sparkline([3, 3, math.nan]) == "▁▁"
    assert sparkline([]) == ""


def test_a_plot_rises_with_its_line():
    picture = plot_lines([([0, 1, 2], [0, 1, 2])], width=40, height=4).plain.splitlines()
    assert len(picture) == 6
    places = [
        next((i for i, c in enumerate(row) if "\u2801" <= c <= "\u28ff"), None)
        for row in picture[:4]
    ]
    assert places == sorted(places, reverse=True)
    assert max(map(len, picture)) <= 40


def test_a_single_point_can_be_drawn():
    assert max(plot_lines([([5], [3.0])]).plain) > "\u2800"
