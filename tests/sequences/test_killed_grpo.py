"""Runs of GRPO that are killed train on every prompt once, and end as runs that were not killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from kills import CONFIGURATIONS, audit

pytestmark = pytest.mark.usefixtures("warm_python")


def check(name: str, kills: int, samples: int, place: Path) -> None:
    found = audit(name, kills, len(name), samples, place)
    assert (found.skipped, found.doubled, found.different) == (0, 0, 0)
    assert found.groups == samples // 4
    assert found.leaves > 200


@pytest.mark.slow
def test_a_killed_run_skips_and_doubles_no_prompt(tmp_path: Path) -> None:
    check("carry over", 1, 1_280, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_however_it_collects(name: str, tmp_path: Path) -> None:
    check(name, 4, 3_200, tmp_path)
