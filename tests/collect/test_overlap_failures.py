"""When something fails where batches are collected: who says so, and what is left."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from overlap_envs import Faulty, SimulatorError, Slow, Stamp, plain

from hooktrainer import OverlappedCollector
from hooktrainer.base.worker import ChildError


def overlapped(env, mode="process", depth=1, timeout=60.0, **options) -> OverlappedCollector:
    options = {"restore_episodes": False} | options
    return OverlappedCollector(plain(Stamp(), env, **options), depth, mode=mode, timeout=timeout)


def pid(collector) -> int:
    return collector._workers[0].pid


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_an_error_of_an_environment_is_raised_with_its_traceback(mode):
    collector = overlapped(Faulty, mode, num_envs=1)
    collector.collect()
    with pytest.raises(SimulatorError, match="the simulator is on fire") as caught:
        collector.collect()
    text = "".join(getattr(caught.value, "__notes__", [])) + str(caught.value.__cause__)
    assert "raised in the collecting" in text
    if mode == "process":
        assert "overlap_envs.py" in text  # the place in the environment
    # It goes on with new episodes, as a plain collector does, and can be saved.
    assert collector.state_dict()["collector"]["frames"] == 8
    assert collector.collect()["next", "step_count"].flatten().tolist() == [1, 2, 3, 4] * 2
    collector.shutdown()


def test_a_killed_process_is_reported_at_once():
    collector = overlapped(lambda: Slow(3600.0))
    collector.start()
    process = pid(collector)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(ChildError, match=rf"{process}\) was killed by SIGKILL.*--resume latest"):
        collector.collect()
    with pytest.raises(ChildError):
        collector.state_dict()
    collector.shutdown()


def test_a_thread_ends_with_its_collector_that_was_not_closed():
    collector = overlapped(lambda: Slow(0.0), "thread")
    collector.collect()
    collector.cycle = collector
    del collector
    gc.collect()
    assert "the collecting thread" not in [thread.name for thread in threading.enumerate()]


LEFT_OPEN = """
from hooktrainer import OverlappedCollector, VectorCollector
collector = VectorCollector("CartPole-v1", num_envs=2, frames_per_batch=1000)
collector = OverlappedCollector(collector, mode="thread")
collector.collect()
"""


@pytest.mark.slow
def test_a_program_ends_that_leaves_its_collecting_thread_open():
    ended = subprocess.run([sys.executable, "-c", LEFT_OPEN], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_timeout_raises(mode):
    collector = overlapped(lambda: Slow(0.1), mode, timeout=0.2)
    with pytest.raises((ChildError, TimeoutError), match="has not answered for"):
        collector.collect()
    collector.shutdown()


class Telling(Slow):
    """Writes a file when it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__(0.05)
        self.path = path

    def close(self) -> None:
        Path(self.path).touch()


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_environments_are_closed_in_the_middle_of_a_batch_too(mode, tmp_path):
    path = str(tmp_path / "closed")
    collector = overlapped(lambda: Telling(path), mode)
    collector.collect()  # the next one is under way
    Path(path).unlink(missing_ok=True)
    collector.shutdown()
    assert Path(path).exists()
