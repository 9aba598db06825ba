"""About N policies, evenly spaced, however long the run turns out to be."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from hooktrainer.hooks.policy_snapshot import SpreadCadence


def kept(policy, frames: list[int]) -> list[int]:
    saved = [SimpleNamespace(path=Path(str(number)), frames=number) for number in frames]
    return sorted(int(path.name) for path in policy.keep(saved))


def train(n: int, total: int, end: int, batch: int) -> tuple[list[int], int]:
    """The frames of the policies that a run has at its end, and how many it saved."""
    cadence = SpreadCadence(n, total)
    saved, taken = [0], 1
    for frames in range(batch, end + 1, batch):
        if cadence.due(frames, saved[-1]):
            saved.append(frames)
            taken += 1
            saved = kept(cadence.keep(frames), saved)
            assert len(saved) <= 2 * n + 1
    if saved[-1] != end:
        saved, taken = [*saved, end], taken + 1
    return kept(cadence.final, saved), taken


def test_a_run_that_goes_to_its_end_has_them_at_even_marks():
    assert train(6, 100, 100, 1)[0] == [0, 20, 40, 60, 80, 100]
    assert train(5, 1_000_000, 1_000_000, 1_000)[0] == [0, 250_000, 500_000, 750_000, 1_000_000]
    assert train(2, 100, 100, 10)[0] == [0, 100]


@pytest.mark.parametrize("end", [10_240, 12_000, 20_000, 33_000, 50_000, 77_000, 99_000])
def test_a_run_that_ends_early_has_as_many_evenly_spaced(end):
    frames, taken = train(6, 100_000, end, 1_000)
    assert len(frames) == 6
    gaps = [after - before for before, after in pairwise(frames)]
    assert max(gaps) <= 2 * min(gaps) + 1_000
    assert taken < 60


def test_when_it_is_due_depends_on_the_counters_alone():
    for frames in range(1, 2_000, 7):
        fresh, used = SpreadCadence(6, 100_000), SpreadCadence(6, 100_000)
        newest = frames - frames % 300
        used.due(newest, 0)
        assert fresh.due(frames, newest) == used.due(frames, newest)
