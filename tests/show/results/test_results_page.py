"""The results page is generated from the shipped results."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from hooktrainer.show import read_rows
from hooktrainer.show.results.result_rows import ResultRow, RowRecipe, RunDigest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def make():
    return runpy.run_path(str(DOCS / "make_results.py"))


def test_the_page_and_its_picture_are_generated_from_the_results(make):
    rows = read_rows()
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    assert make["page"](text, rows, make["read_peers"]()) == text
    assert make["picture"](rows) == (DOCS / "assets" / "results.svg").read_text(encoding="utf-8")


def test_a_peer_is_shown_where_ours_stops_and_at_its_own_end(make, tmp_path):
    digests = {seed: RunDigest(((4_000, 480.0 + seed),), {}, "") for seed in (0, 1)}
    row = ResultRow(RowRecipe("r", ("ppo",)), digests, {}, "abc", cpu_seconds=5.0)
    reaches = [[3_000, 400, 1.5], [6_000, 490, 3], [9_000, 470, 5]]
    fails = [[3_000, 50, 1], [6_000, 60, 3], [9_000, 70, 5]]
    seeds = {
        "0": {"hooktrainer_cpu_seconds": 6.0, "curve": reaches},
        "1": {"hooktrainer_cpu_seconds": 8.0, "curve": fails},
    }
    settings, made = {"algorithm": "PPO"}, {"processor": "a chip", "sb3-contrib": "2.9"}
    peer = {"settings": settings, "task": {"stop_at": 475.0}, "surroundings": made, "seeds": seeds}
    (tmp_path / "r.json").write_text(json.dumps(peer))

    def lines():
        return make["peers_table"]({"r": row}, make["read_peers"](tmp_path)).splitlines()[2:]

    assert lines() == [
        "| `r` | hooktrainer | 0-1 | 4k | 480.5; none | 480, 481 | 7 |",
        "| | SB3 PPO, stopped as here | 0-1 | 7.5k (6k to 9k) | 280; none | 70, 490 | 4 |",
        "| | SB3 PPO | 0-1 | 9k | 270; none | 70, 470 | 5 |",
        "",
        "Run with a chip, sb3-contrib 2.9.",
    ]
    peer["task"]["stop_at"] = None  # ours stops after 4,000 frames
    (tmp_path / "r.json").write_text(json.dumps(peer))
    assert lines()[1] == "| | SB3 PPO, stopped as here | 0-1 | 6k | 275; none | 60, 490 | 3 |"
