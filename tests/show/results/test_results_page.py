"""The results page is generated from the shipped results."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from hooktrainer.show import read_rows

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def make():
    return runpy.run_path(str(DOCS / "make_results.py"))


def test_the_page_and_its_picture_are_generated_from_the_results(make):
    rows = read_rows()
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    assert make["page"](text, rows) == text
    assert make["picture"](rows) == (DOCS / "assets" / "results.svg").read_text(encoding="utf-8")
