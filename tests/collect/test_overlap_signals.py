"""A run that collects ahead, killed in every way: nothing is left of it, and it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from warm_python import executable

from hooktrainer.store import list_checkpoints

ROOT = Path(__file__).parents[2]
MARK = "HOOKTRAINER_TEST_RUN"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]


class Driver:
    """A recipe in a process, and whatever it starts."""

    def __init__(self, run: Path, *options: str, python: str = sys.executable) -> None:
        self.run = run
        self.mark = str(uuid.uuid4())
        command = [python, str(ROOT / "recipes/ppo_cartpole.py"), "--run-dir", str(run)]
        command += ["--overlap", "1", "--no-progress-bar", "--logger", "csv", "--stop-at", "1000"]
        command += ["--eval-episodes", "2", "--save-interval", "1024", *options]
        self.errors = run.parent / f"{self.mark}.txt"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, MARK: self.mark, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def family(self) -> list[int]:
        """Ids of all processes that it started and that are alive, its own included.

        They have its mark in their environment, or in the name of their standard error.
        """
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError):
                    environment = (entry / "environ").read_bytes()
                    if self.mark in f"{environment!r}{os.readlink(entry / 'fd/2')}":
                        found.append(int(entry.name))
        return found

    def wait_until_it_saves(self) -> None:
        self.wait_for(lambda: len(self.saved()) > 1 or self.process.poll() is not None, 60)
        assert self.process.poll() is None, self.errors.read_text()

    def saved(self) -> list[int]:
        listing = list_checkpoints(self.run / "checkpoints")
        return [checkpoint.manifest.frames for checkpoint in listing.checkpoints]

    def wait_for(self, condition, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited in vain; left: {self.family()}"
            time.sleep(0.1)

    def check_that_nothing_is_left(self) -> None:
        self.wait_for(lambda: not self.family(), 10)

    def end(self) -> None:
        for process in self.family():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path / "run", "--total-frames", "1000000")
    yield driver
    driver.end()


def resume(run: Path, frames: int) -> None:
    words = ("--resume", "latest", "--total-frames", str(frames))
    again = Driver(run, *words, python=executable())
    try:
        assert again.process.wait(60) == 0, again.errors.read_text()
        again.check_that_nothing_is_left()
    finally:
        again.end()
    assert again.saved()[-1] >= frames


def test_sigterm_saves_ready_batches_and_ends(driver):
    driver.wait_until_it_saves()
    for process in driver.family():  # as a scheduler or a terminal does
        os.kill(process, signal.SIGTERM)
    assert driver.process.wait(30) == 128 + signal.SIGTERM, driver.errors.read_text()
    driver.check_that_nothing_is_left()
    summary = json.loads((driver.run / "run.json").read_text())
    assert summary["frames"] == driver.saved()[-1]
    resume(driver.run, driver.saved()[-1] + 2048)
