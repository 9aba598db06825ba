"""A run on data that is killed goes on as the run that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from outcomes import wait_for

from hooktrainer.cli import main
from hooktrainer.cli.verify_resume import committed_frames

RECIPE = Path(__file__).parents[2] / "recipes/classify_digits.py"


@pytest.mark.slow
@pytest.mark.usefixtures("warm_python")
def test_a_killed_recipe_resumes_bit_for_bit_and_has_learned(tmp_path, capsys):
    def begin(run: str, *more: str) -> subprocess.Popen[str]:
        words = (
            "--run-dir",
            run,
            "--save-interval",
            "1000",
            "--logger",
            "csv",
            "--no-progress-bar",
        )
        command = [sys.executable, str(RECIPE), *words, *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)

    straight, killed = begin("straight"), begin("killed")
    wait_for(lambda: committed_frames(tmp_path / "killed") > 2000)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert 0 < committed_frames(tmp_path / "killed") < 32_000
    resumed = begin("killed", "--resume", "latest")
    for process in (straight, resumed):
        printed = process.communicate(timeout=120)[0]
        assert process.returncode == 0
        assert "the data ran out after 8 epochs · 32,000 samples in" in printed
        assert float(printed.split("accuracy on new digits: ")[1].rstrip("%\n")) > 90
    assert main(["ckpt", "diff", str(tmp_path / "straight"), str(tmp_path / "killed")]) == 0
    assert "identical" in capsys.readouterr().out
