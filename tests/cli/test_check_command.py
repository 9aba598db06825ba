"""`hooktrainer check`: its table, JSON and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TABULAR = Path(__file__).parents[1] / "conformance" / "tabular.py"
ONLY = ("--only", "frames", "--only", "unknown-option")


def test_the_table_has_a_line_for_each_probe(call):
    done = call("check", f"{TABULAR}:Tabular", *ONLY)
    assert done.code == 0
    rows = [[cell.strip() for cell in row.split("│")] for row in done.out.splitlines()]
    rows = [row[1:5] for row in rows if len(row) > 4]
    assert rows == [
        ["frames", "pass", "1024 collected and reported", "1024 collected, 1024 reported"],
        *[["unknown-option", "pass", "an exception with a message", rows[1][3]]],
    ]
    assert "numpy " in done.out.splitlines()[-1]


def test_a_failure_exits_with_1_and_a_documented_one_with_0(call):
    assert call("check", f"{TABULAR}:Dies", *ONLY).code == 1
    assert call("check", f"{TABULAR}:SaysSo", *ONLY).code == 0


def test_json_has_the_findings(call):
    done = call("check", f"{TABULAR}:SaysSo", *ONLY, "--json")
    found = json.loads(done.out)
    assert found["trainer"] == f"{TABULAR}:SaysSo"
    assert set(found["packages"]) == {"numpy", "torch", "gymnasium"}
    assert found["findings"][0] == {
        "probe": "frames",
        "result": "documented",
        "expected": "1024 collected and reported",
        "seen": "960 collected, 960 reported",
        "reference": "the manual, page 3",
    }


def test_what_cannot_be_checked_exits_with_2(call, tmp_path):
    raises = tmp_path / "raises.py"
    raises.write_text("raise RuntimeError('no licence')\n")
    done = call("check", f"{raises}:Mine")
    assert (done.code, done.out) == (2, "")
    assert "cannot be loaded: RuntimeError: no licence" in done.err
    assert call("check", "tensorforce").code == 2
    assert call("check", "hooktrainer", "--only", "speed").code == 2
    assert call("check", "hooktrainer", "--timeout", "0").code == 2


@pytest.mark.parametrize("words", [["check", "--help"]])
def test_help_says_that_an_adapter_is_code(call, words):
    assert "whose code is run" in " ".join(call(*words).out.replace("│", " ").split())
