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
from hooktrainer.base.child_program import end_with_parent
def told():
    print("told", flush=True)
end_with_parent(7, told)
print(hooktrainer.__file__, os.environ["COLOUR"], *sys.argv[1:], flush=True)
time.sleep(100)
"""

PARENT = """
import os, signal, sys, time
from hooktrainer.base.child_program import ChildProgram
program = ChildProgram("worker_module", environ={"COLOUR": "red"})
print(program.pid, flush=True)
if sys.argv[1] == "forked":
    if os.fork() == 0:  # keeps the other end of the program's input
        os.close(1)
        time.sleep(100)
        os._exit(0)
time.sleep(100)
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "worker_module.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def start(*arguments: str) -> ChildProgram:
    return ChildProgram(
        "worker_module", *arguments, environ={"COLOUR": "red"}, nice=3, stdout=subprocess.PIPE
    )


def state(pid: int) -> str:
    """The letter of a process's state, as ``T`` of one that is stopped; ``""`` if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return ""
    return stat.rsplit(")", 1)[1].split()[0]


def is_gone(pid: int) -> bool:
    return state(pid) in ("", "Z")


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def test_a_child_program_receives_lines_and_ends_with_its_input(tmp_path, monkeypatch):
    shadow = tmp_path / "elsewhere" / "hooktrainer"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(shadow.parent)
    program = start("one", "two")
    with program.output as lines:
        file = PACKAGE_ROOT / "hooktrainer" / "__init__.py"
        assert lines.readline().decode().split() == [str(file), "red", "one", "two"]
        assert program.code is None
        assert program.wait(0.01) is None
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, program.pid) == min(own + 3, 19)
        assert os.getsid(program.pid) == program.pid
        program.send_line(b"now")
        assert lines.readline() == b"told\n"
        program.close(60.0)
    assert program.code == 7


def test_a_child_program_that_does_not_end_is_killed():
    program = start()
    with program.output as lines:
        lines.readline()
        os.kill(program.pid, signal.SIGSTOP)
        wait_until(lambda: state(program.pid) == "T")  # a signal takes its time
        program.close(0.01)
    assert program.code == -signal.SIGKILL


@pytest.mark.parametrize("how", ["alone", "forked"])
def test_a_child_program_ends_when_its_parent_is_killed(how, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(PACKAGE_ROOT)]))
    command = [sys.executable, "-c", PARENT, how]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        pid = int(parent.stdout.readline())
        wait_until(lambda: Path(f"/proc/{pid}/task").exists() and threads(pid) >= 2)
        os.kill(parent.pid, signal.SIGKILL)
        wait_until(lambda: is_gone(pid))
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
