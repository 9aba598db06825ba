"""`hooktrainer tensorboard`."""

from __future__ import annotations

import sys
from types import SimpleNamespace

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


def test_tensorboards_program_runs_here(call, run, monkeypatch):
    """A process of its own would import what lies in the current directory, such as the run's."""
    started = []
    main = SimpleNamespace(run_main=lambda: started.append(sys.argv))
    monkeypatch.setitem(sys.modules, "tensorboard.main", main)
    monkeypatch.setattr(sys, "argv", [])
    assert call("tensorboard", run.path, "--port", 0).code == 0
    assert started == [["tensorboard", f"--logdir={run.logs}", "--host=localhost", "--port=0"]]
