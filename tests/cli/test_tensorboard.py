"""`hooktrainer tensorboard`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from hooktrainer import RunDir, get_logger
from hooktrainer.cli.logs import logs_of

ROOT = Path(__file__).parents[2]


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


@pytest.mark.slow
def test_it_prints_its_address_and_serves_until_it_is_told_to_end(run):
    server = subprocess.Popen(
        [sys.executable, "-m", "hooktrainer", "tensorboard", str(run.path), "--port", "0"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    with server, server.stderr:
        try:
            said = next(line for line in server.stderr if "at http://localhost:" in line)
            url = said.split(" at ")[1].split()[0]
            with urllib.request.urlopen(f"{url}data/environment", timeout=30) as answer:
                assert str(run.logs) in answer.read().decode()
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
