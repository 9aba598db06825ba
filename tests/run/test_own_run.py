"""What `get_logger` logs is a run: with an id, a `run.json`, and a directory of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hooktrainer import RunDir, get_logger
from hooktrainer.log import read_csv, read_scalars
from hooktrainer.store import CheckpointManager, find_runs
from hooktrainer.testing import tiny_trainer

KINDS = ("csv", "tensorboard")


def run_once(root: Path, value: float = 1.0) -> str:
    """Log one value as a run; return where it went."""
    with get_logger(KINDS, root, "first") as logger:
        logger.log_scalar("a", value, 10)
    return logger.log_dir


def test_it_says_how_it_stands_from_its_first_value_to_its_end(tmp_path):
    logger = get_logger("csv", tmp_path, "first")
    logger.log_hparams({"lr": 0.1, "seed": 3})
    assert list(tmp_path.iterdir()) == []  # nothing is known of it yet
    logger.log_scalar("a", 1.0, 10)
    run = RunDir(tmp_path / "first")
    state = run.read()
    assert (state["status"], state["experiment"], state["pid"]) == ("running", "first", os.getpid())
    assert {"run_id", "host", "command", "started", "git_commit", "versions"} <= set(state)
    assert run.read_config() == {"lr": 0.1, "seed": 3}
    logger.log_scalars({"a": 2.0, "b": 3.0}, 20)
    logger.close("stopped")
    state = run.read()
    assert (state["status"], state["frames"]) == ("stopped", 20)
    assert state["metrics"] == {"a": 2.0, "b": 3.0}
    assert [found.path for found in find_runs(tmp_path)] == [run.path]


def test_a_run_that_fails_says_at_how_many_frames_and_why(tmp_path):
    trainer = tiny_trainer(logger=get_logger("csv", tmp_path, "first"), log_interval=20)

    def fail(batch):
        if trainer.collected_frames == 30:
            raise ValueError("boom")

    trainer.register_op("batch_process", fail)
    with pytest.raises(ValueError, match="boom"):
        trainer.train()
    state = RunDir(tmp_path / "first").read()
    assert (state["status"], state["frames"]) == ("failed", trainer.collected_frames)
    assert state["reason"] == "ValueError: boom"


def test_its_time_and_optimizer_steps_are_known(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("hooktrainer.run.get_logger.time.time", lambda: now[0])
    logger = get_logger("csv", tmp_path, "first")
    now[0] += 5.0
    logger.log_scalars({"train/optim_steps": 40.0}, 10)
    state = logger.state_dict()
    logger.close()
    known = RunDir(tmp_path / "first").read()
    assert (known["seconds"], known["optim_steps"]) == (5.0, 40)
    now[0] += 100.0  # the process was suspended
    again = get_logger("csv", tmp_path, "first")
    again.load_state_dict(state)
    now[0] += 2.0
    again.log_scalars({"train/optim_steps": 60.0}, 20)
    again.close()
    known = RunDir(tmp_path / "first").read()
    assert (known["seconds"], known["optim_steps"]) == (7.0, 60)


def test_the_same_program_runs_twice_and_nothing_is_mixed(tmp_path, caplog):
    assert [run_once(tmp_path, value) for value in (1.0, 2.0, 3.0)] == [
        str(tmp_path / name) for name in ("first", "first_2", "first_3")
    ]
    assert f"{tmp_path / 'first'} holds another run: this one is {tmp_path / 'first_2'}" in (
        caplog.text
    )
    for name, value in (("first", 1.0), ("first_2", 2.0), ("first_3", 3.0)):
        assert read_csv(tmp_path / name) == {"a": [(10, value)]}
        assert read_scalars(tmp_path / name / "tensorboard") == {"a": [(10, value)]}
    assert len({RunDir(run).run_id for run in find_runs(tmp_path)}) == 3


def test_it_keeps_out_of_the_directory_of_a_run_that_others_keep(tmp_path):
    run = RunDir.create(tmp_path / "first")
    with get_logger("csv", run, "toy") as logger:
        logger.log_scalar("a", 1.0, 1)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert run_once(tmp_path) == str(tmp_path / "first_2")
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_a_state_goes_on_in_the_logs_of_its_run_whichever_number_they_have(tmp_path):
    run_once(tmp_path)
    logger = get_logger(KINDS, tmp_path, "first")
    logger.log_scalar("a", 1.0, 1)
    state = json.loads(json.dumps(logger.state_dict()))
    logger.log_scalar("a", 9.0, 2)
    logger.close()
    run_once(tmp_path)

    again = get_logger(KINDS, tmp_path, "first")
    again.log_hparams({"lr": 0.1})
    again.load_state_dict(state)
    again.log_scalar("a", 2.0, 2)
    again.close()
    assert again.log_dir == str(tmp_path / "first_2")
    assert read_csv(again.log_dir) == {"a": [(1, 1.0), (2, 2.0)]}
    assert read_scalars(Path(again.log_dir, "tensorboard")) == {"a": [(1, 1.0), (2, 2.0)]}
    events = Path(again.log_dir, "tensorboard").glob("*tfevents*")
    assert any(b"lr: 0.1" in path.read_bytes() for path in events)
    kept = RunDir(again.log_dir).read()
    assert (kept["run_id"], len(kept["resumed"])) == (state["run_id"], 1)
    assert len(find_runs(tmp_path)) == 3


@pytest.mark.parametrize("case", ["gone", "already logged", "another run's directory"])
def test_a_state_of_logs_that_are_not_here_is_reported_and_mixes_nothing(tmp_path, caplog, case):
    first = get_logger("csv", tmp_path / "a", "first")
    first.log_scalar("a", 1.0, 1)
    state = first.state_dict()
    first.close()
    place = "elsewhere" if case == "gone" else "a"
    second = get_logger("csv", tmp_path / place, "first")
    if case == "already logged":
        second.log_scalar("b", 1.0, 1)
    elif case == "another run's directory":
        second = get_logger("csv", RunDir.create(tmp_path / "b"), "first")
    second.load_state_dict(state)
    second.log_scalar("b", 2.0, 2)
    second.close()
    assert f"of run {state['run_id']}, whose logs are not those in {second.log_dir}" in caplog.text
    assert read_csv(tmp_path / "a" / "first") == {"a": [(1, 1.0)]}
    assert read_csv(second.log_dir)["b"][-1] == (2, 2.0)
    assert "a" not in read_csv(second.log_dir)


@pytest.mark.parametrize("first", ["manager", "logger"])
def test_checkpoints_that_a_program_keeps_beside_its_logs_are_of_the_same_run(tmp_path, first):
    place = tmp_path / "first" / "checkpoints"
    logger = get_logger("csv", tmp_path, "first")
    if first == "logger":
        logger.log_scalar("a", 0.0, 0)
    with CheckpointManager(place) as manager:
        logger.log_scalar("a", 1.0, 1)
        manager.save({"logger": logger.state_dict()}, frames=1)
    logger.close()
    assert logger.log_dir == str(tmp_path / "first")
    own = RunDir(tmp_path / "first").run_id
    with CheckpointManager(place) as manager:
        again = get_logger("csv", tmp_path, "first")
        checkpoint, tree = manager.load()
        again.load_state_dict(tree["logger"])
        again.close()
    assert checkpoint.manifest.run_id == tree["logger"]["run_id"] == own
    assert again.log_dir == str(tmp_path / "first")


@pytest.mark.parametrize(
    ("ending", "status"),
    [("", "finished"), ("raise ValueError", "failed"), ("logger.close('stopped')", "stopped")],
)
def test_a_program_that_closes_nothing_is_not_taken_for_one_that_runs(tmp_path, ending, status):
    program = (
        "import os, sys\n"
        "from hooktrainer import get_logger\n"
        "logger = get_logger('csv', sys.argv[1], 'first')\n"
        "logger.log_scalar('a', 1.0, 7)\n"
        "if os.fork() == 0: sys.exit()\n"  # of whom the run is not
        "os.wait()\n"
        "from hooktrainer import RunDir\n"
        "assert RunDir(logger.log_dir).read()['status'] == 'running'\n"
        f"{ending}\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], stderr=subprocess.DEVNULL)
    state = RunDir(tmp_path / "first").read()
    assert (state["status"], state["frames"]) == (status, 7)
    assert read_csv(tmp_path / "first") == {"a": [(7, 1.0)]}


@pytest.mark.usefixtures("warm_python")
def test_of_programs_that_begin_at_once_each_has_a_directory(tmp_path):
    program = (
        "import sys\n"
        "from hooktrainer import get_logger\n"
        "logger = get_logger('csv', sys.argv[1], 'first')\n"
        "print(flush=True); sys.stdin.readline()\n"
        "logger.log_scalar('a', float(sys.argv[2]), 1)\n"
        "logger.close()\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(4)
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    for process in started:
        process.communicate(b"\n")
    found = [read_csv(run.path) for run in find_runs(tmp_path)]
    assert sorted(rows["a"][0][1] for rows in found) == [0.0, 1.0, 2.0, 3.0]
    assert all(len(rows["a"]) == 1 for rows in found)


@pytest.mark.parametrize("is_link", [False, True])
def test_a_disk_that_refuses_ends_no_program(tmp_path, caplog, is_link):
    if is_link:
        (tmp_path / "runs").symlink_to(tmp_path / "gone")
    else:
        (tmp_path / "runs").write_text("a file")
    logger = get_logger("csv", tmp_path / "runs", "first")
    for step in range(3):
        logger.log_scalar("a", 1.0, step)
    logger.state_dict()
    logger.close()
    assert caplog.text.count("run.json cannot be kept up to date") == 1
    assert set(logger.failures) == {"csv"}


def test_a_logger_that_logs_nothing_leaves_nothing(tmp_path):
    logger = get_logger(KINDS, tmp_path, "first")
    logger.flush()
    logger.close()
    assert list(tmp_path.iterdir()) == []
