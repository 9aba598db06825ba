"""A process that logs is killed, again and again; the logs end as if it had run through."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hooktrainer.log import read_csv, read_scalars

LAST_STEP = 1000

pytestmark = pytest.mark.usefixtures("warm_python")

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from hooktrainer import get_logger

directory, last, dies_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
logger = get_logger(["csv", "tensorboard"], directory, "run")
checkpoint, first = directory / "checkpoint.json", 0
if checkpoint.exists():
    saved = json.loads(checkpoint.read_text())
    logger.load_state_dict(saved["logger"])
    first = saved["step"]
logger.log_hparams({"last": last})
for step in range(first + 1, last + 1):
    logger.log_scalars({"a": step / 8, "b": -step}, step)
    if step % 50 == 0:
        state = {"step": step, "logger": logger.state_dict()}
        (directory / "new").write_text(json.dumps(state))
        os.replace(directory / "new", checkpoint)
    if step == dies_at:
        logger.flush()  # what comes after the checkpoint is on the disk
        logger.log_scalars({"a": 0.0}, step + 1)  # or is not
        os.kill(os.getpid(), signal.SIGKILL)
logger.close()
"""


def start(directory: Path, dies_at: int = 0) -> int:
    """Run the program until it dies at a step, or to its end; return the exit code."""
    command = [sys.executable, "-c", PROGRAM, str(directory), str(LAST_STEP), str(dies_at)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=Path.cwd(), env=environment, timeout=60).returncode


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_killed_twice(tmp_path):
    for dies_at in (130, 777):
        assert start(tmp_path, dies_at) == -9
    assert start(tmp_path) == 0

    expected = {
        "a": [(step, step / 8) for step in range(1, LAST_STEP + 1)],
        "b": [(step, float(-step)) for step in range(1, LAST_STEP + 1)],
    }
    assert read_csv(tmp_path / "run") == expected
    assert read_scalars(tmp_path / "run/tensorboard") == expected
    accumulator = EventAccumulator(
        str(tmp_path / "run/tensorboard"), size_guidance={"scalars": 0, "tensors": 0}
    ).Reload()
    assert [(e.step, e.value) for e in accumulator.Scalars("a")] == expected["a"]
    assert len(accumulator.Tensors("config/text_summary")) == 1
