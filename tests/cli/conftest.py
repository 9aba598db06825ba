"""Fixtures of the command line's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from hooktrainer.cli import main

sys.path.insert(0, str(Path(__file__).parent))

from cli_runs import make_run_in


class Called(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """`make_run_in` the test's own directory."""
    return partial(make_run_in, tmp_path)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Called]:
    """Runs a command line in this process."""

    def run(*words: object) -> Called:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as error:
            code = int(error.code or 0)
        return Called(code, *capsys.readouterr())

    return run
