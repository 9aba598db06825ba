"""A slice of `make test-fuzz`, and whether it would find what it looks for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_spoilt_files_of_every_kind_are_accepted_or_refused_in_one_line():
    table = run("--cases", "40", "--jobs", "1")
    assert "no faults" in table
    heads, *rows = table.splitlines()[:-1]
    assert heads.split()[:4] == ["cases", "equal", "differs", "refused"]
    assert len(rows) >= 18
    for row in rows:
        cases, equal, differs, refused = map(int, row.split()[-11:-7])
        assert cases == equal + differs + refused == 40, row
        assert equal + differs, f"nothing is accepted: {row}"
        assert refused or "event files" in row, f"nothing is refused: {row}"


def test_planted_defects_are_found():
    """Without the checks the same cases crash, wait, execute, take memory, or show it."""
    found = run("--holes")
    assert len(found.splitlines()) >= 7
    assert "NOT FOUND" not in found
