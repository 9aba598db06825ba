from __future__ import annotations

import io

from rich.console import Console

from hooktrainer.loop.timing import time_rows, time_table

TIMES = {
    "step": 8.0,
    "collect": 2.0,
    "collect/env": 0.5,
    "collect/inference": 1.0,
    "optimize": 5.0,
    "hook/optimizer": 3.0,
    "hook/tiny": 0.001,
    "evaluate": 0.5,
    "hook/evaluate": 0.5,
    "worker/env": 6.0,
}
HOOKS = {
    "hook/optimizer": "optimize",
    "hook/tiny": "optimize",
    "hook/evaluate": "evaluate",
    "hook/gone": "hooks",
}


def test_phases_are_listed_by_size_with_their_parts():
    assert time_rows(TIMES, HOOKS) == [
        ("optimize", 5.0, 0),
        ("optimizer", 3.0, 1),
        ("collect", 2.0, 0),
        ("inference", 1.0, 1),
        ("env", 0.5, 1),
        ("evaluate", 0.5, 0),  # its only hook is the phase itself
    ]


def test_parts_of_concurrent_work_follow_it():
    times = {"worker/collect/env": 2.0, "worker/collect": 3.0, "worker/idle": 2.5, "step": 9.0}
    assert time_rows(times, group="worker") == [
        ("collect", 3.0, 1),
        ("env", 2.0, 2),
        ("idle", 2.5, 1),
    ]


def draw(totals):
    out = io.StringIO()
    Console(file=out, width=80).print(time_table(totals, HOOKS))
    return [line.split() for line in out.getvalue().splitlines()]


def test_the_table_gives_shares_and_what_is_missing():
    lines = draw(TIMES)
    assert ["optimize", "5.00", "62.5%", "█" * 15] in lines
    assert ["optimizer", "3.00", "37.5%"] in lines
    assert ["in", "between", "0.50", "6.2%", "██"] in lines  # 1.5 of 24, rounded to even
    assert ["all", "of", "it", "8.00", "100.0%"] in lines
    assert ["beside", "the", "loop"] in lines


def test_a_part_never_exceeds_its_whole():
    """A batch that failed has phases, and no step."""
    rows = draw({"step": 1.0, "collect": 8.0})
    assert ["collect", "8.00", "100.0%"] in [row[:3] for row in rows]
    assert ["all", "of", "it", "8.00", "100.0%"] in rows
