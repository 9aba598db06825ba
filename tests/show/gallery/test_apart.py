"""The gallery does not affect the run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from outcomes import same

from hooktrainer.store import CheckpointManager

ROOT = Path(__file__).parents[3]
RECIPE = [str(ROOT / "recipes" / "ppo_cartpole.py"), "--no-progress-bar"]
OPTIONS = ["--total-frames", "6144", "--eval-interval", "2048", "--eval-episodes", "2"]
COMMAND = ["-m", "hooktrainer", "gallery", "--follow", "--episodes", "1"]


def train(run: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, *RECIPE, *OPTIONS, "--run-dir", str(run), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment())


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def trained(run: Path) -> list[dict[str, Any]]:
    """Parameters and the state of the optimizer at the end."""
    with CheckpointManager(run / "checkpoints") as manager:
        components = manager.load("latest")[1]["components"]
    return [components[name] for name in ("loss_module", "hook/optimizer")]


@pytest.mark.usefixtures("warm_python")
@pytest.mark.slow
def test_a_running_gallery_does_not_change_training(tmp_path):
    watched, alone = tmp_path / "watched", tmp_path / "alone"
    run = train(watched, "--snapshots", "3")
    while run.poll() is None and not (watched / "run.json").exists():
        time.sleep(0.05)
    command = [sys.executable, *COMMAND, str(watched)]
    subprocess.run(command, check=True, env=environment(), capture_output=True)
    assert run.wait() == 0
    assert (watched / "gallery.html").read_text().count("<article") == 3
    assert train(alone).wait() == 0
    assert same(trained(watched), trained(alone))
