"""The queue and writer thread: order, blocking, failures, forks, ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outcomes import wait_for

from hooktrainer.log import BackgroundSink, CSVSink, Logger, Sink, read_csv


class RecordingSink(Sink):
    """Keeps what it is given; waits for `gate`; raises `error` if set."""

    name = "recording"

    def __init__(self) -> None:
        self.values: list[float] = []
        self.closed: list[str] = []
        self.flushes = 0
        self.gate = threading.Event()
        self.gate.set()
        self.error: BaseException | None = None

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        self.gate.wait()
        if self.error is not None:
            raise self.error
        self.values.extend(values.values())

    def write_image(self, *record: Any) -> None:
        self.gate.wait()

    def flush(self) -> None:
        self.flushes += 1

    def close(self, status: str = "finished") -> None:
        self.closed.append(status)

    def state_dict(self) -> dict[str, Any]:
        return {"count": len(self.values)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        del self.values[state_dict["count"] :]


@pytest.fixture
def sink() -> RecordingSink:
    return RecordingSink()


def test_records_are_written_without_a_flush(sink):
    logger = Logger({"r": BackgroundSink(sink, linger=0.01)})
    logger.log_scalar("x", 1.0, 0)
    wait_for(lambda: sink.flushes)
    assert sink.values == [1.0]
    logger.close()


@pytest.mark.parametrize("picture", [False, True])
def test_a_full_queue_makes_the_caller_wait_and_drops_nothing(sink, picture, monkeypatch):
    monkeypatch.setattr("hooktrainer.log.sink._MEMORY", 5 * 64)
    background = BackgroundSink(sink, capacity=1000 if picture else 5, linger=0, patience=60)
    logger = Logger({"r": background})
    sink.gate.clear()

    def log_all() -> None:
        for step in range(20):
            logger.log_scalar("x", step, step)
            if picture:
                logger.log_image("i", np.zeros((8, 8, 1), np.uint8), step)

    caller = threading.Thread(target=log_all)
    caller.start()
    caller.join(0.2)
    assert caller.is_alive()
    sink.gate.set()
    caller.join(10)
    assert not caller.is_alive()
    logger.close()
    assert sink.values == list(range(20))


def test_state_is_that_of_everything_logged_before(sink):
    logger = Logger({"r": BackgroundSink(sink)})
    for step in range(7):
        logger.log_scalar("x", step, step)
    state = logger.state_dict()
    assert state["sinks"]["r"] == {"count": 7}
    logger.log_scalar("x", 99, 7)
    logger.load_state_dict(state)
    assert sink.values == list(range(7))
    logger.close()


def hanging(sink: RecordingSink, **options: Any) -> Logger:
    """A logger whose sink is held up in the write of a first record."""
    options = {"linger": 0, "patience": 0.05, "limit": 600, **options}
    logger = Logger({"r": BackgroundSink(sink, **options)})
    sink.gate.clear()
    logger.log_scalar("x", 0.0, 0)
    return logger


def test_a_hanging_sink_is_reported_once_and_delays_nothing(sink, caplog):
    healthy = RecordingSink()
    logger = hanging(sink, capacity=3, limit=0.1)
    logger.sinks["good"] = BackgroundSink(healthy)
    for step in range(1, 100):  # a full queue, a checkpoint, a flush; none of them comes to an end
        logger.log_scalar("x", float(step), step)
        logger.flush()
    assert logger.state_dict()["sinks"] == {"r": {"late": 99}, "good": {"count": 99}}
    (record,) = caplog.records
    assert "'recording'" in record.message
    assert "training does not wait" in record.message
    assert "step 0 on" in record.message
    logger.close()
    assert "was not closed in time" in str(logger.failures["r"])
    assert healthy.values == [float(step) for step in range(1, 100)]
    sink.gate.set()


def test_a_state_without_an_answer_is_the_loaded_one_until_something_is_logged(sink):
    logger = hanging(sink)
    logger.load_state_dict({"counts": {}, "sinks": {"r": {"count": 7}}})
    assert logger.state_dict()["sinks"] == {"r": {"count": 7}}
    logger.log_scalar("x", 1.0, 70)
    assert logger.state_dict()["sinks"] == {"r": {"late": 70}}
    sink.gate.set()
    logger.close()


def test_pictures_wait_in_the_queue(sink, caplog):
    logger = hanging(sink)
    for step in range(10):
        logger.log_image("i", np.zeros((8, 8, 1), np.uint8), step)
    assert not caplog.records
    sink.gate.set()
    logger.close()


def test_a_sink_that_recovers_is_written_to_again(sink):
    logger = hanging(sink, capacity=3)
    for step in range(1, 20):
        logger.log_scalar("x", float(step), step)
    sink.gate.set()
    wait_for(lambda: not logger.sinks["r"]._is_late)
    logger.log_scalar("x", 9.0, 9)
    logger.close()
    assert logger.failures == {}
    assert sink.values[-1] == 9.0
    assert sink.values == sorted(sink.values)


def test_a_deadline_limits_every_wait(sink):
    logger = hanging(sink, patience=600, limit=600)
    logger.set_deadline(time.monotonic() + 0.05)
    assert logger.state_dict()["sinks"] == {"r": {"late": 0}}
    logger.close()
    assert set(logger.failures) == {"r"}
    sink.gate.set()


@pytest.mark.parametrize("how", ["close", "exit"])
def test_a_process_whose_sink_hangs_ends(tmp_path, how):
    program = (
        "import sys, threading\n"
        "from hooktrainer.log import BackgroundSink, CSVSink, Logger\n"
        "class Hanging(CSVSink):\n"
        "    def write_scalars(self, *record): threading.Event().wait()\n"
        "sink = BackgroundSink(Hanging('none'), patience=0.1, limit=0.1)\n"
        "logger = Logger({'csv': sink})\n"
        "logger.log_scalar('x', 1.0, 5)\n"
        "if sys.argv[1] == 'close': logger.close()\n"
    )
    subprocess.run([sys.executable, "-c", program, how], check=True, cwd=Path.cwd(), timeout=60)


LEFT_OPEN = """
import multiprocessing, os, sys, threading, time
from hooktrainer.log import Logger, Sink

has_ended = threading.Event()

def say(line):
    os.write(1, f"{line}\\n".encode())  # whole, whichever thread it is from

class Late(Sink):
    def __init__(self, closing):
        self.closing = closing
    def write_scalars(self, values, step):
        has_ended.wait()
        time.sleep(0.1)
        from concurrent.futures import ThreadPoolExecutor  # as the packages of loggers do
        with ThreadPoolExecutor(1) as pool:
            pool.submit(say, f"wrote {step}").result()
    def flush(self):
        pass
    def close(self, status="finished"):
        say(f"closed {'server' if self.closing else 'file'} {status}")

def log():
    sinks = {"server": Late(1.0), "file": Late(0.0)}
    Logger(sinks).log_scalar("x", 1.0, 5)
    has_ended.set()

if sys.argv[1] == "fork":
    child = multiprocessing.get_context("fork").Process(target=log)
    child.start()
    child.join()
else:
    log()
if sys.argv[1] == "error":
    raise ValueError
"""


@pytest.mark.parametrize("how", ["exit", "error", "fork"])
def test_a_program_that_ends_at_once_has_written_everything(how):
    command = [sys.executable, "-c", LEFT_OPEN, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    status = "failed" if how == "error" else "finished"
    closed = [f"closed file {status}", f"closed server {status}"]
    lines = done.stdout.splitlines()
    assert sorted(lines) == [*closed, "wrote 5", "wrote 5"], done.stderr
    assert [line for line in lines if line in closed] == closed


IN_A_GENERATOR = """
from hooktrainer import get_logger

def steps():
    with get_logger("csv", ".", "run") as logger:
        while True:
            logger.log_scalar("x", 1.0)
            yield

running = steps()
next(running)
"""


def test_a_generator_that_logs_is_left_with_the_program(tmp_path):
    command = [sys.executable, "-c", IN_A_GENERATOR]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SystemExit(3)])
def test_a_failing_sink_is_reported_once_and_left_alone(sink, caplog, error):
    healthy = RecordingSink()
    logger = Logger({"bad": BackgroundSink(sink), "good": BackgroundSink(healthy)})
    logger.log_scalar("x", 0.0, 0)
    logger.flush()
    sink.error = error
    for step in range(1, 5):
        logger.log_scalar("x", float(step), step)
        logger.flush()
    assert sink.values == [0.0]
    assert healthy.values == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert logger.failures == {"bad": error}
    (record,) = caplog.records
    assert "recording" in record.message
    assert "step 1" in record.message
    assert str(error) in record.message
    logger.close("failed")
    assert sink.closed == ["failed"]


def test_a_failed_sink_still_has_a_state_and_gets_another_chance(sink):
    logger = Logger({"r": BackgroundSink(sink)})
    logger.log_scalar("x", 0.0, 0)
    logger.flush()
    sink.error = OSError("gone")
    logger.log_scalar("x", 1.0, 1)
    state = logger.state_dict()
    assert state["sinks"]["r"] == {"count": 1}
    sink.error = None
    logger.load_state_dict(state)
    logger.log_scalar("x", 2.0, 2)
    logger.close()
    assert sink.values == [0.0, 2.0]


def test_closing_ends_the_thread_and_a_later_write_starts_another(sink):
    before = threading.active_count()
    logger = Logger({"r": BackgroundSink(sink)})
    for value in (1.0, 2.0):
        logger.log_scalar("x", value, 0)
        assert threading.active_count() == before + 1
        logger.close("stopped")
        assert threading.active_count() == before
    assert sink.values == [1.0, 2.0]
    assert sink.closed == ["stopped", "stopped"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_writes_its_own_and_not_the_parents(tmp_path):
    logger = Logger({"csv": BackgroundSink(CSVSink(tmp_path / "metrics.csv"), linger=60)})
    logger.log_scalar("x", 0.0, 0)
    logger.flush()
    logger.log_scalar("x", 1.0, 1)  # still queued when the child appears
    child = os.fork()
    if child == 0:
        try:
            logger.log_scalar("x", 2.0, 2)
            logger.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    logger.close()
    assert sorted(read_csv(tmp_path)["x"]) == [(0, 0.0), (1, 1.0), (2, 2.0)]
