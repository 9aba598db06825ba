"""A process that logs is killed, again and again; the logs end as if it had run through."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hooktrainer.loggers import read_csv, read_scalars

LAST_STEP = 3000
PROGRAM = """
import json, os, sys, time
from pathlib import Path
from hooktrainer.loggers import get_logger

directory, last = Path(sys.argv[1]), int(sys.argv[2])
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
        time.sleep(0.002)
logger.close()
"""


def start(directory: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, str(directory), str(LAST_STEP)]
    return subprocess.Popen(command, cwd=Path.cwd(), env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_killed_twice(tmp_path):
    rng = random.Random(0)
    checkpoint = tmp_path / "checkpoint.json"
    reached = 0
    for _ in range(2):
        child = start(tmp_path)
        deadline = time.monotonic() + 60
        target = reached + rng.randrange(100, 600)
        while child.poll() is None and reached < target and time.monotonic() < deadline:
            time.sleep(0.001 * rng.random())
            if checkpoint.exists():
                reached = json.loads(checkpoint.read_text())["step"]
        child.kill()
        assert child.wait() == -9, "the child ended before it was killed"
    assert start(tmp_path).wait(60) == 0

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
