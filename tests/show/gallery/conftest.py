"""Fixtures of the gallery's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from saved_runs import write_run

from hooktrainer import RunDir


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunDir]:
    return partial(write_run, tmp_path / "run")
