"""Programs that train for this process."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from hooktrainer.base.child_program import ChildProgram
from hooktrainer.cli.report import run_programs

PROGRAM = """
import pathlib, signal, sys, time
import neighbour
started, code = pathlib.Path(sys.argv[1]), int(sys.argv[2])
def saved(*_):
    started.with_suffix(".saved").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, saved)
started.write_text(" ".join([sys.orig_argv[1], *sys.argv]))
while code < 0:
    time.sleep(0.01)
sys.exit(code)
"""


@pytest.fixture
def starts(tmp_path):
    """Makes what starts programs that end with the codes given; those below 0 do not end."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "neighbour.py").write_text("")

    def make(*codes, command=("-m", "program")):
        return [
            lambda number=number, code=code: ChildProgram(
                [*command, f"{number}.txt", str(code)], tmp_path
            )
            for number, code in enumerate(codes)
        ]

    return make


def test_all_are_run_whatever_becomes_of_one(starts, tmp_path):
    assert run_programs(starts(0, 3, 0), 1, 30.0) == [0, 3, 0]
    assert (tmp_path / "2.txt").exists()


def test_to_a_program_it_is_as_if_it_had_been_started_by_itself(starts, tmp_path):
    script = str(tmp_path / "program.py")
    for command, seen in ((("-m", "program"), f"-m {script}"), ((script,), f"{script} {script}")):
        assert run_programs(starts(0, command=command), 1, 30.0) == [0]
        assert (tmp_path / "0.txt").read_text() == f"{seen} 0.txt 0"


@pytest.mark.usefixtures("free_sigterm")
def test_a_signal_is_passed_on_and_starts_nothing_more(starts, tmp_path):
    def interrupt():
        while not all((tmp_path / f"{number}.txt").exists() for number in (0, 1)):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(SystemExit) as ended:
        run_programs(starts(-1, -1, 0), 2, 30.0)
    assert ended.value.code == 143
    assert {path.name for path in tmp_path.glob("?.*")} == {
        "0.txt", "0.saved", "1.txt", "1.saved",
    }  # fmt: skip
