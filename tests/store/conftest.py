"""Lets the tests here import what lies beside them, and says at the end how often each failure was
provoked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fault_injection import FULL
from tally import Tally

TALLY = pytest.StashKey[Tally]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = Tally()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Counts what was provoked, for the table at the end."""
    return request.config.stash[TALLY]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if FULL and (lines := config.stash[TALLY].table()):
        terminalreporter.section("what was done to checkpoints")
        for line in lines:
            terminalreporter.write_line(line)
