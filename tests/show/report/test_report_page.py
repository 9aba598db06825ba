"""Pages of reports and comparisons, and their plots."""

from __future__ import annotations

import re

import pytest
from browser import CHROMIUM, browse
from marks import slow_except
from test_analysis import BAD, GOOD, task

from hooktrainer.show import Study, analyze, report_page


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
    assert "of 55 pairs separated" in page
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
