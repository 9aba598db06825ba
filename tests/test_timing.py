from __future__ import annotations

import io

import pytest
from rich.console import Console

import hooktrainer.timing
from hooktrainer.testing import make_trainer
from hooktrainer.timing import TimedCall, Timing


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets by hand: each reading advances it by one second."""
    now = [0.0]

    def read() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(hooktrainer.timing, "perf_counter", read)
    return now


def test_a_phase_adds_up(clock):
    timing = Timing()
    for _ in range(3):
        with timing.phase("collect"):
            pass
    timing.add("collect", 10.0)
    assert timing.totals == {"collect": 13.0}


def test_a_phase_that_fails_is_counted(clock):
    timing = Timing()
    with pytest.raises(RuntimeError), timing.phase("collect"):
        raise RuntimeError
    assert timing.totals == {"collect": 1.0}


def test_a_window_reports_seconds_per_batch_and_frames_per_second():
    timing = Timing()
    timing.add("collect", 4.0)
    timing.add("step", 8.0)
    report = timing.close_window(frames=400, batches=2)
    assert report == {"time/collect": 2.0, "time/step": 4.0, "time/fps": 50.0}
    timing.add("step", 1.0)
    assert timing.close_window(frames=500, batches=3) == {"time/step": 1.0, "time/fps": 100.0}


def test_a_window_without_a_batch_reports_nothing_and_loses_nothing():
    timing = Timing()
    timing.add("step", 1.0)
    assert timing.close_window(frames=0, batches=0) == {}
    timing.add("step", 1.0)
    assert timing.close_window(frames=10, batches=1)["time/step"] == 2.0


def test_a_window_may_start_in_the_middle():
    timing = Timing()
    timing.add("step", 100.0)
    timing.start_window(frames=1000, batches=10)
    timing.add("step", 2.0)
    assert timing.close_window(frames=1010, batches=11) == {"time/step": 2.0, "time/fps": 5.0}


def test_a_timed_call_counts_for_the_calls_it_stands_for(clock):
    timing = Timing()
    call = TimedCall(lambda x: x + 1, timing, "hook/a", weight=64)
    assert call(1) == 2
    assert timing.totals == {"hook/a": 64.0}


def test_the_table_lists_phases_by_size_with_their_share():
    timing = Timing()
    for name, seconds in (("collect", 1.0), ("optimize", 3.0), ("hook/a", 2.0), ("step", 4.0)):
        timing.add(name, seconds)
    out = io.StringIO()
    Console(file=out, width=80).print(timing.table())
    lines = [line for line in out.getvalue().splitlines() if "." in line]
    assert ["optimize" in lines[0], "collect" in lines[1], "hook/a" in lines[2]] == [True] * 3
    assert "75.0%" in lines[0]
    assert "step" in lines[3]


def test_a_trainer_times_every_phase_and_every_hook(logger):
    trainer = make_trainer(logger=logger)

    def slow_hook() -> None:
        sum(range(1000))

    trainer.register_op("post_optim", slow_hook)
    trainer.train()
    first = logger.rows[0][1]
    for name in ("collect", "optimize", "step", "hook/slow_hook", "hook/optimizer", "fps"):
        assert first[f"time/{name}"] > 0
