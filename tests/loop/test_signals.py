"""Signals: the end of a run in order and in time, at any moment of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outcomes import committed

from hooktrainer.loop import Control, GracefulSignals, SignalExit, ending_cleanly
from hooktrainer.run import RankControl, Ranks
from hooktrainer.store import CheckpointManager
from hooktrainer.testing import tiny_trainer

ALL = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


@pytest.fixture(autouse=True)
def cut_off(monkeypatch) -> Iterator[list[int]]:
    """Exit codes with which the process would have been cut off, had it not been this one."""
    codes: list[int] = []
    monkeypatch.setattr("hooktrainer.loop.signals.exit_now", codes.append)
    # TorchRL's memory-mapped storages, of a test before this one, leave handlers behind.
    own = {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, own.get(number, signal.SIG_DFL)) for number in ALL}
    yield codes
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


class Watching:
    """Notes, at the end of a run, which checkpoints there were by then."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.saved: list[int] = []
        self.closed = 0

    def __call__(self, batch: Any) -> None: ...

    def on_train_end(self, trainer: Any) -> None:
        self.saved = committed(self.run)

    def close(self) -> None:
        self.closed += 1


def trainer_that(tmp_path, do, **options: Any) -> tuple[Any, Watching]:
    """A trainer that does something in its third batch, of ten frames each."""
    options = {"grace": 60.0, "save_trainer_interval": 10, **options}
    checkpoints = CheckpointManager(tmp_path / "checkpoints")
    trainer = tiny_trainer(total_frames=1_000, checkpoints=checkpoints, **options)
    watching = Watching(tmp_path)
    trainer.register_op("post_steps_log", watching)
    trainer.register_op("post_steps", lambda: trainer.progress.batches == 3 and do())
    return trainer, watching


@pytest.mark.parametrize("number", ALL)
def test_a_signal_ends_the_run_after_the_batch_and_the_checkpoint_comes_first(tmp_path, number):
    trainer, watching = trainer_that(tmp_path, lambda: send(number))
    with pytest.raises(SystemExit) as ended:
        trainer.train()
    assert ended.value.code == 128 + number
    assert trainer.collected_frames == 30
    assert watching.saved[-1] == 30  # when on_train_end was called
    assert trainer.control.status == "interrupted"
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)


def test_a_signal_in_the_last_batch_saves_first_and_a_resume_finishes_the_run(tmp_path):
    trainer, watching = trainer_that(tmp_path, lambda: send(signal.SIGTERM))
    trainer.total_frames = 30
    with pytest.raises(SystemExit):
        trainer.train()
    assert watching.saved[-1] == 30
    again, watching = trainer_that(tmp_path, lambda: None)
    again.total_frames = 30
    again.load_state_dict(again.checkpoints.load("latest")[1])
    assert not again.has_ended
    again.train()
    assert (again.control.status, watching.saved[-1]) == ("finished", 30)


@pytest.mark.parametrize("control", [Control, lambda: RankControl(Control(), Ranks())])
def test_a_batch_that_is_not_done_in_time_is_abandoned(tmp_path, capfd, cut_off, control):
    def hang() -> None:
        send(signal.SIGTERM)
        threading.Event().wait()

    trainer, watching = trainer_that(tmp_path, hang, grace=0.4)
    trainer.control = control()
    with pytest.raises(SignalExit) as ended:
        trainer.train()
    assert ended.value.code == 143
    assert watching.closed == 1
    assert trainer.control.status == "interrupted"
    assert "not done 0.4 seconds after SIGTERM" in trainer.stop_reason
    assert committed(tmp_path)[-1] == 20
    told = capfd.readouterr().err
    assert "SIGTERM: finishing the batch, within 0.4 seconds; once more to abort." in told
    assert "the batch is not done and is abandoned. The last checkpoint stands" in told
    assert cut_off == []


def test_a_hanging_logger_delays_neither_the_checkpoint_nor_the_exit(tmp_path, caplog, cut_off):
    class Hanging:
        def log_scalar(self, name: str, value: float, step: int) -> None:
            threading.Event().wait()

    trainer, watching = trainer_that(
        tmp_path,
        lambda: send(signal.SIGTERM),
        logger=[Hanging()],
        grace=2.0,
        save_trainer_interval=1_000,  # the only checkpoint is that of the end
    )
    with pytest.raises(SystemExit) as ended:
        trainer.train()
    assert ended.value.code == 143
    assert watching.saved == [30]
    assert "'Hanging' does not keep up" in caplog.text
    assert cut_off == []


STUBBORN = """
import os, signal, sys
from hooktrainer.loop.control import Control
from hooktrainer.loop.signals import GracefulSignals
print("printed before", end="")
with GracefulSignals(Control(), 0.3):
    os.kill(os.getpid(), signal.SIGTERM)
    while True:
        try:
            signal.pause()
        except BaseException:
            pass
"""


@pytest.mark.parametrize("to", ["", ">&-", ">/dev/full"])
def test_a_call_that_never_returns_is_killed(to, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    command = ["sh", "-c", f'exec "$0" -c "$1" {to}', sys.executable, STUBBORN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert done.returncode == 143
    assert done.stdout == ("" if to else "printed before")
    assert "cut off. --resume latest continues from its last checkpoint." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_signal_aborts():
    def send_two() -> None:
        with GracefulSignals(Control()):
            send(signal.SIGTERM)
            send(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="a second signal"):
        send_two()


def test_ignored_signals_and_other_handlers_are_left_alone():
    seen: list[int] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    with ending_cleanly(), GracefulSignals(control := Control()):
        send(signal.SIGHUP)
        send(signal.SIGTERM)
    assert seen == [signal.SIGTERM]
    assert control.signal is None


@pytest.mark.parametrize("number", ALL)
def test_before_training_a_signal_ends_the_process_with_one_line(number, capfd):
    with pytest.raises(SystemExit) as ended, ending_cleanly():
        send(number)
    assert ended.value.code == 128 + number
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert line == f"{signal.Signals(number).name}: ended; no batch was under way."


IMPORTING = """
import os, signal, sys
from hooktrainer.cli.train import train_algorithm
assert "torch" not in sys.modules
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
train_algorithm("ppo", ["--env", "CartPole-v1", "--total-frames", "1000"])
"""


def test_a_signal_during_an_import_ends_the_process_with_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 130
    assert done.stderr.strip() == "SIGINT: ended; no batch was under way."
    assert list(tmp_path.iterdir()) == []
