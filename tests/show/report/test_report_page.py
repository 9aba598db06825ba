"""The page of a report, and how its numbers read."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from marks import slow_except

sys.path.insert(0, str(Path(__file__).parents[1]))

from browser import CHROMIUM, browse
from test_findings import BAD, GOOD, task

from hooktrainer.show.report.findings import find, interval_text, reaching_text
from hooktrainer.show.report.report_page import report_page
from hooktrainer.show.report.study import Study
from hooktrainer.statistics import Interval, time_to_reach


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (Interval(471.26, 466.14, 475.97, ""), "471.3 [466.1, 476.0]"),
        (Interval(471.26, 255.1, 681.97, ""), "471 [255, 682]"),
        (Interval(0.51234, 0.5, 0.53, ""), "0.512 [0.500, 0.530]"),
        (Interval(12345.6, 11000, 13000.4, ""), "12,346 [11,000, 13,000]"),
        (Interval(500.0, 500.0, 500.0, "exact"), "500 [500, 500]"),
        (Interval(445.33, None, None, "3 seeds"), "445.3 [-]"),
        (Interval(12345.6, None, None, "3 seeds"), "12,346 [-]"),
    ],
)
def test_an_interval_has_the_digits_that_it_is_sure_of(one, text):
    assert interval_text(one) == text


def test_a_time_that_was_not_reached_is_longer_than_what_was_watched():
    def shown(value):
        return f"{value:.0f} s"

    some = time_to_reach([1.0, 2.0, 3.0, 9.0, 9.0, 9.0], [True] * 4 + [False] * 2)
    assert reaching_text(some, shown) == "3 s [1 s, …]"
    few = time_to_reach([1.0, 9.0, 9.0], [True, False, False])
    assert reaching_text(few, shown) == "over 9 s"
    assert reaching_text(time_to_reach([9.0], [False]), shown) == "-"
    assert reaching_text(None, shown) == "-"


def test_the_page_needs_nothing_else_and_says_it_all():
    made = task("Env<1>", threshold=60.0, good=GOOD, bad=BAD[:3])
    study = Study("eval/return", [made], [("out/x", "it failed")])
    page = report_page(study, find(study), "last")
    assert "Content-Security-Policy" in page
    assert not re.search(r"(src|href)=.?https?:", page)
    assert page.count("<svg") == 4  # curves and profile, each for wide and narrow screens
    assert "Env&lt;1&gt; at 200 frames" in page
    assert "<Env" not in page
    for text in (">good</span>", ">bad</span>", "3 seeds: no interval", "it failed", "run11"):
        assert text in page
    assert page.count('class="band') >= 2


def test_a_group_without_intervals_has_no_bands():
    study = Study("eval/return", [task(bad=BAD[:3])], [])
    page = report_page(study, find(study), "last")
    polygons = re.findall(r'<polygon class="band[^>]*points="([^"]*)"', page)
    for polygon in polygons:
        points = polygon.split()
        half = len(points) // 2
        assert points[:half] == points[half:][::-1]


def test_the_page_says_that_less_is_better():
    study = Study("eval/error", [task(a=GOOD, b=BAD)], [], minimize=True)
    page = report_page(study, find(study), "last")
    assert "eval/error (less is better), at the last frames" in page
    assert "The share of seeds that score less" in page
    assert "b is better than a" in page


def many(count):
    return task(**{f"lr {n}": GOOD + 10 * n for n in range(count)})


def test_a_title_a_legend_and_comparisons_of_many_groups_are_short():
    made = many(15)
    study = Study("eval/return", [made], [])
    page = report_page(study, find(study), "last")
    assert re.search("<h1>(.*?)</h1>", page)[1] == "Report: A"
    assert "95 more comparisons" in page  # folded
    assert {f"key c{n % 10} d{n // 10}" for n in range(15)} <= set(
        re.findall('class="(key [^"]*)"', page)
    )
    assert 'class="band' not in page
    table = page[page.index("<table") : page.index("</table>")]
    assert re.findall(r"<th\b[^>]*>([^<]*)", table)[0] == "interquartile mean"
    assert re.findall(r"<th\b[^>]*>([^<]*)", table)[-1] == "group"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "groups"), slow_except([(1280, 15), (390, 3), (390, 15)], 1))
def test_in_a_browser(width, groups, tmp_path):
    study = Study("eval/return", [many(groups)], [])
    found, _ = browse(report_page(study, find(study), "last"), width, tmp_path)
    assert found["width"] == width
    assert found["content"] <= width
    assert found["charts"] == 2
    assert found["errors"] == []
