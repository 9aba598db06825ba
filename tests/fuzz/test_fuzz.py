"""A slice of `make test-fuzz`, and whether it would find what it looks for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent
FAULTS = ("crash", "exception", "executed", "hang", "leak", "memory")


def run(*words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
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


def test_every_fault_is_seen():
    """Readers that crash, wait, execute, take memory, or show it."""
    table = run("--self-test", "--cases", "1", "--jobs", "1", "--patience", "2", code=1)
    faults = [line.split(":")[0] for line in table.splitlines() if ": " in line]
    assert sorted(set(faults) - {"    again"}) == sorted(FAULTS)
