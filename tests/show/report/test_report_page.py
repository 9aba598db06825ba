"""Pages of reports and comparisons, their texts, plots and axes."""

from __future__ import annotations

import math
import re

import pytest
from browser import CHROMIUM, browse
from marks import slow_except
from test_analysis import BAD, GOOD, task

from hooktrainer.show.chart import sparkline, ticks
from hooktrainer.show.report.analysis import analyze, interval_text, reaching_text
from hooktrainer.show.report.grouping import spread
from hooktrainer.show.report.report_page import report_page
from hooktrainer.show.report.study import Study
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


def test_the_report_page_is_self_contained_and_complete():
    made = task("Env<1>", threshold=60.0, good=GOOD, bad=BAD[:3])
    study = Study("eval/return", [made], [("out/x", "it failed")])
    page = report_page(study, analyze(study), "last")
    assert "Content-Security-Policy" in page
    assert not re.search(r"(src|href)=.?https?:", page)
    assert page.count("<svg") == 4  # curves and profile, each for wide and narrow screens
    assert "Env&lt;1&gt; at 200 frames" in page
    assert "<Env" not in page
    for text in (">good</span>", ">bad</span>", "3 seeds: no interval", "it failed", "run11"):
        assert text in page
    assert page.count('class="band') >= 2


def test_the_page_says_that_less_is_better():
    study = Study("eval/error", [task(a=GOOD, b=BAD)], [], minimize=True)
    page = report_page(study, analyze(study), "last")
    assert "eval/error (less is better), at the last frames" in page
    assert "The share of seeds that score less" in page
    assert "b is better than a" in page


def many(count):
    return task(**{f"lr {n}": GOOD + 10 * n for n in range(count)})


def test_a_title_a_legend_and_comparisons_of_many_groups_are_short():
    made = many(11)
    study = Study("eval/return", [made], [])
    page = report_page(study, analyze(study), "last")
    assert re.search("<h1>(.*?)</h1>", page)[1] == "Report: A"
    assert "of 55 pairs told apart" in page
    assert {f"key c{n % 10} d{n // 10}" for n in range(11)} <= set(
        re.findall('class="(key [^"]*)"', page)
    )
    assert 'class="band' not in page
    table = page[page.index("<table") : page.index("</table>")]
    assert re.findall(r"<th\b[^>]*>([^<]*)", table)[0] == "IQM"
    assert re.findall(r"<th\b[^>]*>([^<]*)", table)[-1] == "group"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "groups"), slow_except([(1280, 15), (390, 3), (390, 15)], 1))
def test_in_a_browser(width, groups, tmp_path):
    study = Study("eval/return", [many(groups)], [])
    found, _ = browse(report_page(study, analyze(study), "last"), width, tmp_path)
    assert found["width"] == width
    assert found["content"] <= width
    assert found["charts"] == 2
    assert found["errors"] == []


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
