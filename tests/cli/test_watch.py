"""`hooktrainer watch`."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest
from finished_runs import orphan, write_run

from hooktrainer import get_logger


def test_watch_once_shows_progress_metrics_and_phases(call, tmp_path):
    run = write_run(tmp_path / "a", (10.0, 30.0, 20.0), status="running")
    done = call("watch", run.path, "--once")
    assert done.code == 0
    for text in (
        "toy · seed 0 · running",
        "30%  300 of 1,000 frames",
        "1,000 frames/s · 0.7 s left",
        "eval/return",
        "▁█▅",  # 10, 30, 20
        "optimize",
        "60.0%",
        "100.00",  # milliseconds of a batch
    ):
        assert text in done.out
    assert done.out.index("eval/return") < done.out.index("optimize  ")  # a low terminal cuts
    run.update(total_frames=None)
    assert "0%  300 frames" in call("watch", run.path, "--once").out


@pytest.mark.parametrize("status", ["failed", "died"])
def test_watching_a_failed_run_exits_with_1(call, tmp_path, status):
    run = write_run(tmp_path / "a", status="failed", reason="ValueError: no")
    if status == "died":
        orphan(run)
    done = call("watch", run.path)
    assert done.code == 1
    wanted = "ValueError: no" if status == "failed" else "Its process is gone"
    assert wanted in done.out


@pytest.mark.parametrize("logger", ["csv", "tensorboard"])
def test_watching_ends_with_the_run(call, tmp_path, logger):
    run = write_run(tmp_path / "a", status="running")
    if logger == "tensorboard":
        run.metrics.unlink()
        with closing(get_logger(logger, run, "toy")) as events:
            events.log_scalar("eval/return", 10.0, step=100)
        run.update(status="running")

    def end() -> None:
        time.sleep(0.1)
        if logger == "csv":
            with run.metrics.open("a") as file:
                file.write("400,eval/return,77.5\n")
        run.update(status="finished", frames=400, metrics={"eval/return": 77.5})

    thread = threading.Thread(target=end)
    thread.start()
    done = call("watch", run.path, "--interval", 0.02)
    thread.join()
    assert done.code == 0
    before, _, after = done.out.partition("toy · seed 0 · finished")
    assert "toy · seed 0 · running" in before  # a pipe shows how it stood, and how it ended
    assert "77.5" not in before
    assert "77.5" in after


def test_of_several_runs_the_last_one_begun_is_watched(call, tmp_path):
    write_run(tmp_path / "old", started="2020-01-01T00:00:00+00:00", experiment="old")
    write_run(tmp_path / "new", experiment="new")
    assert "new · seed 0" in call("watch", tmp_path, "--once").out
