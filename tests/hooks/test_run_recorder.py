from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path

import pytest

from hooktrainer import RunDir, RunRecorder
from hooktrainer.store import run_dir
from hooktrainer.testing import tiny_trainer


def recorded(path, config=None, **arguments):
    trainer = tiny_trainer(**arguments)
    RunRecorder(RunDir.create(path / "run"), config, report=False).register(trainer)
    return trainer, lambda: json.loads((path / "run" / "run.json").read_text())


def test_a_finished_run(tmp_path):
    trainer, read = recorded(tmp_path, {"lr": 0.1})
    assert read()["status"] == "running"
    trainer.train()
    run = read()
    assert (run["status"], run["reason"]) == ("finished", None)
    assert (run["frames"], run["optim_steps"]) == (50, 10)
    assert run["metrics"]["loss/loss"] == 1.0
    assert run["seconds"] >= 0
    assert "lr: 0.1" in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.parametrize("status", ["stopped", "solved", "pruned"])
def test_a_run_that_is_over_for_a_known_reason_has_it_as_its_status(tmp_path, status):
    trainer, read = recorded(tmp_path)
    trainer.register_op("post_steps", lambda: trainer.request_stop("enough", status=status))
    trainer.train()
    assert (read()["status"], read()["reason"]) == (status, "enough")
    assert trainer.state_dict()["ended"]


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("boom"), "failed"), (KeyboardInterrupt(), "interrupted")]
)
def test_a_run_that_an_exception_ended(tmp_path, error, status):
    def fail():
        raise error

    trainer, read = recorded(tmp_path)
    trainer.register_op("post_optim", fail)
    with pytest.raises(type(error)):
        trainer.train()
    run = read()
    assert run["status"] == status
    assert type(error).__name__ in run["reason"]
    assert run["frames"] == 10


def test_the_heartbeat_is_written_after_a_batch_and_at_most_once_a_second(tmp_path, monkeypatch):
    trainer, read = recorded(tmp_path, total_frames=200)
    monkeypatch.setattr(run_dir, "_now", lambda: f"at {trainer.progress.seconds:.0f} s")
    seen = []

    def look():
        run = read()
        assert (run["pid"], run["host"]) == (os.getpid(), socket.gethostname())
        seen.append((run["frames"], run["updated"], run["status"]))
        trainer.progress.seconds = 0.4 * len(seen)  # whatever batches of ten frames took

    trainer.register_op("post_steps", look)
    trainer.train()
    beats = list(dict.fromkeys(seen))
    assert len(seen) == 20
    assert beats[:4] == [
        *((0, "at 0 s", "running"), (40, "at 1 s", "running")),
        *((60, "at 2 s", "running"), (90, "at 3 s", "running")),
    ]
    assert list((tmp_path / "run").glob(".tmp-*")) == []


def test_the_final_report_says_what_was_reached_and_where_to_look(tmp_path, capsys):
    trainer = tiny_trainer()
    RunRecorder(RunDir.create(tmp_path / "run")).register(trainer)
    trainer.register_op("post_steps_log", lambda td: {"eval/return": 12.0})
    trainer.train()
    out = capsys.readouterr().out
    assert "Where the time went" in out
    last = out.strip().splitlines()[-1]
    assert "eval/return 12.0" in last
    assert "50 frames" in last
    assert "look:" in last


@pytest.mark.parametrize("killed", [False, True])
def test_a_finished_run_that_is_resumed_has_its_record(tmp_path, capsys, killed):
    state = tmp_path / "state.pt"
    trainer = tiny_trainer(save_trainer_file=state)
    RunRecorder(RunDir.create(tmp_path / "run")).register(trainer)
    trainer.register_op("post_steps_log", lambda td: {"eval/return": trainer.collected_frames})
    trainer.train()
    before = RunDir(tmp_path / "run").read()
    if killed:  # after its last save, before it was recorded
        RunDir(tmp_path / "run").update(status="running", metrics={"eval/return": 0.0})
    capsys.readouterr()

    again = tiny_trainer()
    RunRecorder(RunDir.create(tmp_path / "run", resume=True)).register(again)
    again.register_op("post_steps_log", lambda td: {"eval/return": 0.0})
    again.load_from_file(state)
    again.train()
    after = RunDir(tmp_path / "run").read()
    assert {k: v for k, v in after.items() if k not in ("updated", "resumed")} == {
        k: v for k, v in before.items() if k != "updated"
    }
    assert again.metrics.reported == trainer.metrics.reported
    out = capsys.readouterr().out
    assert "finished: eval/return" in out
    assert "Where the time went" not in out


def example(trainer):
    return RunRecorder(RunDir.create(Path(tempfile.mkdtemp()) / "run"), {"lr": 0.1}, report=False)
