"""The W&B sink, offline, read back from the run's own file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hooktrainer import get_logger
from hooktrainer.log import Logger
from hooktrainer.log.wandb import WandbSink, read_records, wait_for_end

pytest.importorskip("wandb")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))


def logger_at(path: Path) -> Logger:
    return Logger({"wandb": WandbSink(path, "project", "run")})


def records(path: Path) -> list[Any]:
    files = sorted(path.glob("wandb/offline-run-*/*.wandb"))
    return [record for file in files for record in read_records(file)]


def written(path: Path) -> None:
    """Wait for W&B's own process, which closes a run's file a little after the run."""
    for file in path.glob("wandb/offline-run-*/*.wandb"):
        wait_for_end(file)


def rows(path: Path) -> list[dict[str, Any]]:
    """Every row of the run, from all its processes, without W&B's own columns."""
    found = []
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            row = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}
            found.append({key: value for key, value in row.items() if not key.startswith("_")})
    return found


def exit_codes(path: Path) -> list[int]:
    return [r.exit.exit_code for r in records(path) if r.WhichOneof("record_type") == "exit"]


def test_scalars_arrive_offline(tmp_path):
    logger = get_logger("wandb", tmp_path, "exp")
    logger.log_hparams({"optim": {"lr": 0.5}})
    logger.log_scalars({"train/reward": 1.5, "loss": 2}, 128)
    logger.log_scalar("loss", 1.0, 256)
    logger.close()
    written(tmp_path / "exp")
    assert logger.failures == {}
    assert rows(tmp_path / "exp") == [
        {"step": 128, "train/reward": 1.5, "loss": 2.0},
        {"step": 256, "loss": 1.0},
    ]
    assert exit_codes(tmp_path / "exp") == [0]
    assert "wandb sync" in logger.how_to_view()["wandb"]


def test_resume_is_the_same_run_with_every_step_once(tmp_path):
    logger = logger_at(tmp_path)
    logger.log_scalar("x", 1.0, 1)
    state = logger.state_dict()
    logger.log_scalar("x", 2.0, 2)
    logger.close("interrupted")
    written(tmp_path)

    resumed = logger_at(tmp_path)
    resumed.load_state_dict(state)
    for step in (2, 3):
        resumed.log_scalars({"x": float(step), "y": 0.5}, step)
    resumed.close()
    written(tmp_path)
    assert resumed.failures == {}
    assert rows(tmp_path) == [
        {"step": 1, "x": 1.0},
        {"step": 2, "x": 2.0},
        {"step": 2, "y": 0.5},
        {"step": 3, "x": 3.0, "y": 0.5},
    ]
    files = {file.stem for file in tmp_path.glob("wandb/offline-run-*/*.wandb")}
    assert files == {f"run-{state['sinks']['wandb']['id']}"}
    assert sorted(exit_codes(tmp_path)) == [0, 255]


KILLED = """
import json, os, pathlib, signal, sys, time
from hooktrainer import get_logger
logger = get_logger("wandb", sys.argv[1], "run")
files = pathlib.Path(sys.argv[1], "run")
for step in range(1, 2001):
    logger.log_scalar("x", float(step), step)
    while not any(files.glob("wandb/offline-run-*/*.wandb")):  # W&B takes seconds to begin
        time.sleep(0.05)
    if step == 1000:
        print(json.dumps(logger.state_dict()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_rolling_back_within_one_process(tmp_path):
    logger = logger_at(tmp_path)
    logger.log_scalar("x", 1.0, 1)
    state = logger.state_dict()
    logger.log_scalar("x", 2.0, 2)
    logger.load_state_dict(state)
    for step in (2, 3):
        logger.log_scalar("x", float(step), step)
    logger.close()
    written(tmp_path)
    assert [row["x"] for row in rows(tmp_path)] == [1.0, 2.0, 3.0]


@pytest.mark.slow
@pytest.mark.usefixtures("warm_python")
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_process_leaves_what_the_resumed_one_does_not_repeat(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    environment = {key: value for key, value in os.environ.items() if key != "WANDB_SERVICE"}
    run = subprocess.run(
        command, cwd=Path.cwd(), env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    assert run.returncode == -9
    path = tmp_path / "run"
    size = None
    (file,) = path.glob("wandb/offline-run-*/*.wandb")
    while size != (size := file.stat().st_size):  # its own process writes what it was still given
        time.sleep(0.5)
    resumed = logger_at(path)
    resumed.load_state_dict(json.loads(run.stdout.splitlines()[-1]))
    for step in range(1001, 3001):
        resumed.log_scalar("x", float(step), step)
    resumed.close()
    wait_for_end(max(path.glob("wandb/offline-run-*/*.wandb")))
    assert resumed.failures == {}
    assert [row["step"] for row in rows(path)] == list(range(1, 3001))


def test_an_unreachable_server_keeps_the_run_on_disk(tmp_path, monkeypatch, caplog):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise urllib.error.URLError(ConnectionRefusedError(111, "Connection refused"))

    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    logger = logger_at(tmp_path)
    for step in (1, 2):
        logger.log_scalar("x", float(step), step)
    logger.close()
    written(tmp_path)
    assert logger.failures == {}
    assert [row["x"] for row in rows(tmp_path)] == [1.0, 2.0]
    assert caplog.text.count("W&B cannot be reached") == 1
    assert "Connection refused" in caplog.text
    assert f"wandb sync {tmp_path}" in caplog.text


def test_an_unreadable_file_is_reported_and_does_no_harm(tmp_path, caplog):
    logger = logger_at(tmp_path)
    logger.log_scalar("x", 1.0, 1)
    state = logger.state_dict()
    logger.close()
    written(tmp_path)
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    file.write_bytes(b":W&B" + bytes(7) + b"\x03\0\x01abc")
    resumed = logger_at(tmp_path)
    resumed.load_state_dict(state)
    resumed.log_scalar("x", 2.0, 2)
    resumed.close()
    assert resumed.failures == {}
    assert "may appear twice" in caplog.text


def test_texts_images_videos_and_histograms_arrive(tmp_path):
    logger = logger_at(tmp_path)
    logger.log_text("notes", "hello", 1)
    logger.log_image("frame", np.zeros((4, 4), np.uint8), 2)
    logger.log_video("policy", np.zeros((3, 3, 8, 8), np.uint8), 3)
    logger.log_histogram("weights", [1.0, 2.0, 2.0], 4, bins=2)
    logger.close("failed")
    written(tmp_path)
    assert logger.failures == {}
    text, image, video, histogram = rows(tmp_path)
    assert text == {"step": 1, "notes": "hello"}
    assert any("image-file" in str(value) for value in image.values())
    assert any("video-file" in str(value) for value in video.values())
    assert any("[1, 2]" in str(value) for value in histogram.values())
    assert len(list(tmp_path.rglob("*.gif"))) == 1
    assert exit_codes(tmp_path) == [1]
