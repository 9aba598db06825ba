"""Programs that work beside a process, and do not outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from outcomes import is_gone, state_of_process, wait_for

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


@pytest.mark.parametrize("stopped", [False, True])
def test_a_child_program_ends_with_its_input_or_is_killed(stopped, tmp_path, monkeypatch):
    shadow = tmp_path / "elsewhere" / "hooktrainer"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(shadow.parent)
    printed, command = tmp_path / "printed", ["-m", "worker_module", "one", "two"]
    with printed.open("wb") as out:
        program = ChildProgram(command, stdout=out, environ={"COLOUR": "red"})
    wait_for(lambda: printed.read_text().endswith("\n"))
    file = PACKAGE_ROOT / "hooktrainer" / "__init__.py"
    assert printed.read_text().split() == [str(file), "red", "one", "two"]
    assert program.code is program.wait(0.01) is None
    assert os.getsid(program.pid) == program.pid
    if stopped:
        os.kill(program.pid, signal.SIGSTOP)
        wait_for(lambda: state_of_process(program.pid) == "T")  # a signal takes its time
    program.close(0.01 if stopped else 60.0)
    assert program.code == (-signal.SIGKILL if stopped else 1)


def test_a_child_program_ends_when_its_parent_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(PACKAGE_ROOT)]))
    command = [sys.executable, "-c", PARENT]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        pid = int(parent.stdout.readline())
        wait_for(lambda: len(list(Path(f"/proc/{pid}/task").iterdir())) >= 2)
        os.kill(parent.pid, signal.SIGKILL)
        wait_for(lambda: is_gone(pid))
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
