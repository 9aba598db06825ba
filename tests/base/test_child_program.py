"""Programs that work beside a process, and do not outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hooktrainer.base.child_program import PACKAGE_ROOT, ChildProgram

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks in /proc")

MODULE = """
import os, sys, time
import hooktrainer
print(hooktrainer.__file__, os.environ["COLOUR"], *sys.argv[1:], flush=True)
time.sleep(100)
"""

PARENT = """
import os, signal, sys, time
from hooktrainer.base.child_program import ChildProgram
program = ChildProgram(["-m", "worker_module"], environ={"COLOUR": "red"})
print(program.pid, flush=True)
if os.fork() == 0:  # keeps the other end of the program's input
    os.close(1)
time.sleep(100)
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "worker_module.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def state(pid: int) -> str:
    """The letter of a process's state, as ``T`` of one that is stopped; ``Z`` if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return "Z"
    return stat.rsplit(")", 1)[1].split()[0]


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60.0
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_child_program_ends_with_its_input_or_is_killed(stopped, tmp_path, monkeypatch):
    shadow = tmp_path / "elsewhere" / "hooktrainer"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(shadow.parent)
    printed, command = tmp_path / "printed", ["-m", "worker_module", "one", "two"]
    with printed.open("wb") as out:
        program = ChildProgram(command, stdout=out, environ={"COLOUR": "red"})
    wait_until(lambda: printed.read_text().endswith("\n"))
    file = PACKAGE_ROOT / "hooktrainer" / "__init__.py"
    assert printed.read_text().split() == [str(file), "red", "one", "two"]
    assert program.code is program.wait(0.01) is None
    assert os.getsid(program.pid) == program.pid
    if stopped:
        os.kill(program.pid, signal.SIGSTOP)
        wait_until(lambda: state(program.pid) == "T")  # a signal takes its time
    program.close(0.01 if stopped else 60.0)
    assert program.code == (-signal.SIGKILL if stopped else 1)


def test_a_child_program_ends_when_its_parent_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(PACKAGE_ROOT)]))
    command = [sys.executable, "-c", PARENT]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        pid = int(parent.stdout.readline())
        wait_until(lambda: len(list(Path(f"/proc/{pid}/task").iterdir())) >= 2)
        os.kill(parent.pid, signal.SIGKILL)
        wait_until(lambda: state(pid) == "Z")
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
