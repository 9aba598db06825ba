"""Whether the process that trains a run is still there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from hooktrainer import RunDir
from hooktrainer.store import CheckpointManager
from hooktrainer.store.lock import RunLock, is_alive, locked

LONG_AGO = "2020-01-01T00:00:00+00:00"
ME = {"host": socket.gethostname(), "pid": os.getpid()}


@pytest.fixture
def run(tmp_path):
    return RunDir.create(tmp_path / "run")


def test_a_process_that_is_gone_is_dead_at_once(run):
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    state = {**run.read(), "host": socket.gethostname(), "pid": gone.pid}
    assert is_alive(run.checkpoints, state) is False


def test_a_number_that_another_process_has_now_is_told_by_the_lock(run):
    state = {**ME, "updated": LONG_AGO}
    run.checkpoints.mkdir()
    lock = RunLock(run.checkpoints)
    assert is_alive(run.checkpoints, state) is True
    lock.release()
    assert is_alive(run.checkpoints, state) is False


def test_of_a_run_on_another_machine_nothing_is_known(run):
    assert is_alive(run.checkpoints, {"host": "elsewhere", "pid": 1, "updated": LONG_AGO}) is None
    assert is_alive(run.checkpoints, {"updated": LONG_AGO}) is None  # an old run.json


def test_looking_does_not_disturb_the_lock(run):
    run.checkpoints.mkdir()
    RunLock(run.checkpoints).release()
    is_alive(run.checkpoints, {**ME, "updated": LONG_AGO})
    RunLock(run.checkpoints).release()  # can be taken


def test_a_run_begins_while_another_process_looks_whether_it_is_alive(run, monkeypatch):
    run.checkpoints.mkdir()
    RunLock(run.checkpoints).release()
    look = locked(run.checkpoints / ".lock")
    look.__enter__()
    monkeypatch.setattr(time, "sleep", lambda _: look.__exit__(None, None, None))
    RunLock(run.checkpoints).release()


def test_a_run_waits_for_a_process_of_its_own_that_is_ending(run):
    run.checkpoints.mkdir()
    held = RunLock(run.checkpoints)
    threading.Timer(0.3, held.release).start()
    CheckpointManager(run.checkpoints).close()
