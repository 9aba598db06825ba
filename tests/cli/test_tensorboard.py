"""`hooktrainer tensorboard`."""

from __future__ import annotations

import os

import pytest

from hooktrainer import RunDir, get_logger
from hooktrainer.cli.logs import logs_of


@pytest.fixture
def run(tmp_path):
    run = RunDir.create(tmp_path / "runs" / "a")
    logger = get_logger("tensorboard", run, "toy")
    logger.log_scalar("eval/return", 3.0, step=100)
    logger.close()
    return run


def test_a_run_or_a_directory_of_runs_is_served(run):
    assert logs_of(run.path) == run.logs
    assert logs_of(run.path.parent) == run.path.parent


def test_tensorboards_program_takes_the_place_of_this_process(call, run, monkeypatch):
    started = []

    def execute(_, command):
        started.append(command)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execute)
    assert call("tensorboard", run.path, "--port", 0).code == 0
    assert started[0][-4:] == [
        "tensorboard.main", f"--logdir={run.logs}", "--host=localhost", "--port=0",
    ]  # fmt: skip
