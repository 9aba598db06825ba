from __future__ import annotations

from collections import defaultdict

import pytest
from marks import slow_except

import hooktrainer.loop.timing
from hooktrainer import algorithms
from hooktrainer.log import read_csv
from hooktrainer.loop.timing import Timing
from hooktrainer.testing import tiny_trainer


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets by hand: each reading advances it by one second."""
    now = [0.0]

    def read() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(hooktrainer.loop.timing, "perf_counter", read)
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
    timing.add("collect", 4.0)
    timing.add("step", 8.0)
    report = timing.close_window(frames=400, batches=2)
    assert report == {"time/collect": 2.0, "time/step": 4.0, "time/fps": 50.0}
    timing.add("step", 1.0)
    report = timing.close_window(frames=500, batches=3)
    assert report == {"time/collect": 0.0, "time/step": 1.0, "time/fps": 100.0}


class Reports:
    """A listener that writes down its calls."""

    def __init__(self):
        self.calls = []

    def begin(self, phase):
        self.calls.append(f"begin {phase}")

    def end(self, phase):
        self.calls.append(f"end {phase}")


def test_listeners_receive_serial_phases():
    timing, listener = Timing(), Reports()
    timing.listeners = (listener,)
    with timing.phase("hooks"), timing.phase("hooks/part"), timing.phase("log"):
        pass
    assert listener.calls == ["begin hooks", "begin log", "end log", "end hooks"]


# -- a trainer -----------------------------------------------------------------------------------


def test_a_trainer_times_every_phase_and_every_hook(logger):
    trainer = tiny_trainer(logger=logger)

    def slow_hook() -> None:
        sum(range(1000))

    def hook_of_a_batch() -> None:
        sum(range(1000))

    trainer.register_op("post_optim", slow_hook)
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
