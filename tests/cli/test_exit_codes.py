"""The exit codes that docs/operate.md promises, through the command."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from finished_runs import write_run
from warm_python import executable

from hooktrainer.base.endings import ENDING_SIGNALS
from hooktrainer.cli import main

PAGE = Path(__file__).parents[2] / "docs/operate.md"
SCRIPT = """
import os, signal, sys
from hooktrainer.testing import tiny_trainer

def act():
    if sys.argv[1] == "error":
        raise OSError("the disk is gone")
    if sys.argv[1] == "stop":
        trainer.request_stop("enough")
    if sys.argv[1].startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, under which tests may run, ignores it
trainer = tiny_trainer(total_frames=50)
trainer.register_op("post_steps", act)
trainer.train()
"""


@pytest.mark.parametrize(
    ("word", "code"),
    [
        *(("finish", 0), ("stop", 0), ("error", 1)),
        *(("SIGHUP", 129), ("SIGINT", 130), ("SIGTERM", 143), ("SIGKILL", -9)),
    ],
)
def test_the_command_ends_as_its_run_did(word, code, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [executable(), "-m", "hooktrainer", "train", "script.py", word]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code or (word == "SIGKILL" and done.returncode in (-9, 137))


def test_a_wrong_option_has_code_2_and_nothing_is_made(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("train", "a2c", "--env", "CartPole-v1", "--total-frames", 1000, "--run-dir", "run")
    assert call(*words, "--mirror", "nothere://bucket").code == 2
    assert not (tmp_path / "run").exists()
    assert call(*words, "--logger", "prometheuss").code == 2


def test_the_page_lists_the_code_of_each_signal():
    rows = re.findall(r"^\| ([\d, -]+)", PAGE.read_text(), re.MULTILINE)
    codes = {int(code) for row in rows for code in re.findall(r"-?\d+", row)}
    assert codes == {0, 1, 2, -signal.SIGKILL, *(128 + number for number in ENDING_SIGNALS)}


def test_a_closed_standard_output_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["runs", str(tmp_path)]) == 0
    sys.stdout.close()


def test_a_terminal_without_unicode_is_no_error(tmp_path, monkeypatch):
    run = write_run(tmp_path / "a").path
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert main(["watch", str(run), "--once"]) == 0
    assert main(["runs", str(run), "--curves"]) == 0
