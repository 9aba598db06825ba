from __future__ import annotations

import io
from collections import defaultdict

import pytest
from marks import slow_except
from rich.console import Console

from hooktrainer import algorithms
from hooktrainer.log import read_csv
from hooktrainer.loop import Timing, Trace, time_rows, time_table
from hooktrainer.testing import tiny_trainer


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets by hand: each reading advances it by one second."""
    now = [0.0]

    def read() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr("hooktrainer.loop.timing.perf_counter", read)
    return now


def serial(times):
    """The sum of the serial phases."""
    return sum(t for name, t in times.items() if "/" not in name and name not in ("step", "fps"))


# -- phases --------------------------------------------------------------------------------------


def test_a_nested_phase_is_subtracted_from_the_outer_one(clock):
    timing = Timing()
    with timing.phase("hooks"):  # from 1 to 8
        with timing.phase("checkpoint"), timing.phase("log"):  # from 2 to 5, from 3 to 4
            pass
        with timing.phase("log"):  # from 6 to 7
            pass
    assert timing.totals == {"hooks": 3.0, "checkpoint": 2.0, "log": 2.0}


# -- windows -------------------------------------------------------------------------------------


def test_a_window_reports_seconds_per_batch_and_frames_per_second():
    timing = Timing()
    timing.totals["collect"] += 4.0
    timing.totals["step"] += 8.0
    report = timing.close_window(frames=400, batches=2)
    assert report == {"time/collect": 2.0, "time/step": 4.0, "time/fps": 50.0}
    timing.totals["step"] += 1.0
    report = timing.close_window(frames=500, batches=3)
    assert report == {"time/collect": 0.0, "time/step": 1.0, "time/fps": 100.0}


def test_what_another_thread_adds_meanwhile_is_in_the_next_window():
    class Late(float):
        def __sub__(self, other: float) -> float:
            timing.totals["worker/env"] += 1.0
            return super().__sub__(other)

    timing = Timing()
    timing.totals["step"] = Late(8.0)
    assert timing.close_window(100, 1) == {"time/step": 8.0, "time/fps": 12.5}
    assert timing.close_window(200, 2)["time/worker/env"] == 1.0


# -- a trainer -----------------------------------------------------------------------------------


def test_a_trainer_times_every_phase_and_every_hook(logger):
    trainer = tiny_trainer(logger=logger)

    def slow_hook() -> None:
        sum(range(1000))

    def hook_of_a_batch() -> None:
        sum(range(1000))

    trainer.register_op("post_optim", slow_hook)
    hook_of_a_batch.phase = 2  # not the name of a phase
    trainer.register_op("post_steps", hook_of_a_batch)
    trainer.train()
    first = logger.rows[0][1]
    hooks = ("hook/slow_hook", "hook/optimizer", "hook/hook_of_a_batch")
    for name in ("collect", "optimize", "step", "hooks", *hooks, "fps"):
        assert first[f"time/{name}"] > 0


@pytest.mark.parametrize("algorithm", slow_except(["ppo", "dqn"], "ppo"))
def test_the_serial_phases_are_the_step(algorithm, tmp_path):
    trainer = algorithms.get(algorithm)(
        env="CartPole-v1",
        total_frames=4_096,
        seed=0,
        progress_bar=False,
        eval_interval=1_000,
        eval_episodes=2,
        run_dir=tmp_path / "run",  # with checkpoints, metrics.csv and TensorBoard
        log_interval=1_024,
        save_interval=1_024,
        tuned=False,
    ).train()
    rows = defaultdict(dict)
    for name, curve in read_csv(tmp_path / "run").items():
        for step, value in curve:
            if name.startswith("time/"):
                rows[step][name[5:]] = value
    windows = [rows[step] for step in sorted(rows)]
    assert len(windows) >= 4
    step = sum(times["step"] for times in windows)
    assert 0.95 * step <= sum(map(serial, windows)) <= step
    last = windows[-1]
    assert {"collect", "optimize", "evaluate", "checkpoint", "log", "hooks"} <= last.keys()
    parts = sum(last[f"collect/{name}"] for name in ("env", "inference", "transfer"))
    assert 0 < parts <= last["collect"]
    totals = trainer.timing.totals
    assert 0.95 * totals["step"] <= serial(totals) <= totals["step"]


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


def test_phases_are_listed_by_size_with_their_parts():
    assert time_rows(TIMES) == [
        ("optimize", 5.0, 0),
        ("collect", 2.0, 0),
        ("inference", 1.0, 1),
        ("env", 0.5, 1),
        ("evaluate", 0.5, 0),
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
    Console(file=out, width=80).print(time_table(totals))
    return [line.split() for line in out.getvalue().splitlines()]


def test_the_table_gives_shares_and_what_is_missing():
    lines = draw(TIMES)
    assert ["optimize", "5.00", "62.5%"] in lines
    assert ["optimizer", "3.00", "37.5%"] in lines
    assert not any("tiny" in line for line in lines)
    assert ["in", "between", "0.50", "6.2%"] in lines
    assert ["all", "of", "it", "8.00", "100.0%"] in lines
    assert ["outside", "the", "loop"] in lines


def test_a_part_never_exceeds_its_whole():
    """A batch that failed has phases, and no step."""
    rows = draw({"step": 1.0, "collect": 8.0})
    assert ["collect", "8.00", "100.0%"] in [row[:3] for row in rows]
    assert ["all", "of", "it", "8.00", "100.0%"] in rows


def spans(trace):
    """Name, category, beginning and duration of every span, in the order of the file."""
    return [
        (event["name"], event["cat"], event["ts"], event["dur"])
        for event in trace.as_dict()["traceEvents"]
        if event["ph"] == "X"
    ]


def rows(trace):
    """Process and thread by name, and the spans of each, by their place."""
    found = {}
    for event in trace.as_dict()["traceEvents"]:
        row = found.setdefault((event["pid"], event["tid"]), {"spans": []})
        if event["ph"] == "X":
            row["spans"].append(event["name"])
        else:
            row[event["name"]] = next(iter(event["args"].values()))
    return found


def test_times_are_microseconds_since_the_first_span():
    trace = Trace()
    trace.add("collect/env", 10.0000015, 10.000002)
    trace.add("collect", 10.0, 10.25)
    trace.add("optimize/optimizer", 10.25, 10.5)
    assert spans(trace) == [
        ("collect", "phase", 0.0, 250_000.0),
        ("env", "collect", 1.5, 0.5),
        ("optimizer", "optimize", 250_000.0, 250_000.0),
    ]


def test_spans_of_another_process_have_a_row_of_their_own():
    there = Trace()
    there.add("collect/env", 1.0, 2.0)
    sent = there.take()
    assert sent == [("collect/env", 1.0, 2.0)]
    assert there.take() == []

    trace = Trace()
    trace.add("optimize", 1.5, 2.5)
    for _ in range(2):
        trace.extend(sent, thread="collector 0", pid=4242)
    assert rows(trace)[4242, 2] == {
        "process_name": "collector 0",
        "thread_name": "collector 0",
        "spans": ["env", "env"],
    }
    assert spans(trace)[0] == ("optimize", "phase", 500_000.0, 1_000_000.0)
