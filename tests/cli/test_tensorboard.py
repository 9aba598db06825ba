"""`hooktrainer tensorboard`."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from hooktrainer import RunDir, get_logger


def test_tensorboards_program_runs_here(call, tmp_path, monkeypatch):
    """A process of its own would import what lies in the current directory, such as the run's."""
    run, started = RunDir.create(tmp_path / "runs" / "a"), []
    with get_logger("tensorboard", run, "toy") as logger:
        logger.log_scalar("eval/return", 3.0, step=100)
    main = SimpleNamespace(run_main=lambda: started.append(sys.argv))
    monkeypatch.setitem(sys.modules, "tensorboard.main", main)
    monkeypatch.setattr(sys, "argv", [])
    for path, logs in ((run.path, run.logs), (run.path.parent, run.path.parent)):
        assert call("tensorboard", path, "--port", 0).code == 0
        words = ["tensorboard", f"--logdir={logs}", "--host=localhost", "--port=0"]
        assert started.pop() == words
