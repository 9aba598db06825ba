"""Whole runs ended by a signal to all their processes: nothing is left, and they go on exactly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from outcomes import wait_for
from warm_python import executable

from hooktrainer.cli.compare import compare_runs
from hooktrainer.cli.verify_resume import committed_frames

PPO = Path(__file__).parents[2] / "recipes/ppo_cartpole.py"
OPTIONS = (
    *("--total-frames", "16384", "--save-interval", "1024", "--eval-episodes", "2"),
    *("--stop-at", "1000", "--logger", "csv", "--no-progress-bar"),
)


def begin(python: str, run: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [python, str(PPO), "--run-dir", str(run), *OPTIONS, *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def is_over(group: int) -> bool:
    """Whether all processes of a group have ended."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGKILL, "--overlap 1"),
        (signal.SIGTERM, "--overlap 1 --workers 2 --stages 2"),
        (signal.SIGKILL, "--workers 2 --stages 2"),
        (signal.SIGTERM, "--overlap 2 --env torch/CartPole-v1"),
        (signal.SIGKILL, "--env torch/CartPole-v1"),
    ],
)
def test_a_run_ended_by_a_signal_leaves_nothing_and_resumes_exactly(number, options, tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    words = options.split()
    process = begin(sys.executable, killed, *words)
    try:
        wait_for(lambda: committed_frames(killed) or process.poll() is not None)
        os.killpg(process.pid, number)  # as a scheduler does
        assert process.wait(30) == (-number if number == signal.SIGKILL else 128 + number)
        wait_for(lambda: is_over(process.pid))
    finally:
        if not is_over(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    assert 0 < committed_frames(killed) < 16384
    for run, resume in ((killed, ("--resume", "latest")), (straight, ())):
        assert begin(executable(), run, *words, *resume).wait(120) == 0
    assert [part.found for part in compare_runs(straight, killed, ()) if part.found] == []
