"""``--mirror``: a run goes on from its mirror, on a machine that has nothing of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from outcomes import committed, rows, same_runs, wait_for
from warm_python import executable

from hooktrainer import RunDir
from hooktrainer.algorithms import A2C
from hooktrainer.algorithms.seed_runs import run_of
from hooktrainer.cli.compare import compare_runs
from hooktrainer.cli.scripts import command_again
from hooktrainer.errors import CheckpointError, ConfigError, TakenError
from hooktrainer.run.config import values_in
from hooktrainer.store import Checkpoint, Mirror, fetch
from hooktrainer.sweep import Sweep, SweepOptions

OPTIONS: dict[str, Any] = {
    **{"env": "CartPole-v1", "tuned": False, "total_frames": 512, "num_envs": 2},
    **{"steps_per_batch": 16, "num_cells": (4,), "eval_episodes": 0, "save_interval": 128},
    **{"log_interval": 64, "progress_bar": False, "logger": "csv"},
}


def run_in(run_dir: Path, **options: Any) -> A2C:
    return A2C(**{**OPTIONS, "run_dir": run_dir, **options})


def fail_at(frames: int, algorithm: A2C) -> None:
    """Train until an error."""
    trainer = algorithm.trainer()

    def accident() -> None:
        if trainer.collected_frames >= frames:
            raise OSError("the machine is gone")

    trainer.register_op("post_steps", accident)
    with pytest.raises(OSError, match="the machine is gone"):
        trainer.train()


def test_one_command_starts_a_run_and_continues_it_elsewhere_with_the_same_bits(tmp_path, capsys):
    url = f"file://{tmp_path}/there"
    straight, run = tmp_path / "straight", tmp_path / "run"
    run_in(straight).train()
    fail_at(300, run_in(run, mirror=url, resume="latest"))
    assert f"neither {run} nor {url} has a checkpoint: the run begins." in capsys.readouterr().out
    identity = RunDir(run).run_id
    shutil.rmtree(run)
    run_in(run, mirror=url, resume="latest").train()
    assert f"fetched {run}/checkpoints/step_000000000256 from {url}" in capsys.readouterr().out
    assert RunDir(run).run_id == identity
    assert same_runs(straight, run)
    assert rows(straight) == rows(run)
    state = RunDir(run).read()
    assert (state["status"], state["mirrored_frames"]) == ("finished", 512)
    assert RunDir(tmp_path / "there").read()["status"] == "finished"
    run_in(run, mirror=url, resume="latest", total_frames=640).train()  # from what is here
    assert "fetched" not in capsys.readouterr().out


def test_resume_takes_the_address_of_a_mirror(tmp_path):
    url = f"file://{tmp_path}/there"
    run_in(tmp_path / "run", mirror=url, mirror_keep=1).train()
    assert committed(tmp_path / "there") == [512]
    longer = run_in(tmp_path / "longer", resume=url, total_frames=640).train()
    assert longer.collected_frames == 640
    assert committed(tmp_path / "longer") == [512, 640]
    assert committed(tmp_path / "there") == [512]  # it is mirrored if it is asked to be
    with pytest.raises(CheckpointError, match=r"--resume file://.*/none: there is no checkpoint"):
        run_in(tmp_path / "other", resume=f"{url}/none").trainer()
    with pytest.raises(ConfigError, match="leave out --fork"):
        run_in(tmp_path / "other", resume=url, fork="runs/a").trainer()


def test_a_run_that_is_not_the_mirrors_is_refused(tmp_path):
    url = f"file://{tmp_path}/there"
    run_in(tmp_path / "run", mirror=url).train()
    with pytest.raises(TakenError, match="or choose another --mirror"):
        run_in(tmp_path / "other", mirror=url).trainer()
    with pytest.raises(ConfigError, match=r"mirror='file:///x' needs a run_dir"):
        A2C(**{**OPTIONS, "logger": ()}, mirror="file:///x").trainer()


def test_a_password_is_not_written(tmp_path, monkeypatch):
    url = "ftp://me:se:cr@et@localhost/there"
    monkeypatch.setattr(Mirror, "open", lambda *_: None)
    monkeypatch.setattr(sys, "argv", [sys.argv[0], "--mirror", url, f"--mirror={url}"])
    monkeypatch.setattr(sys, "orig_argv", ["python", *sys.argv])
    trainer = run_in(tmp_path / "run", mirror=url).train()
    assert trainer.checkpoints.mirror.remote.name == "ftp://me:***@localhost/there"
    assert RunDir(tmp_path / "run").read_config()["mirror"] == "ftp://me:***@localhost/there"
    assert RunDir(tmp_path / "run").read()["argv"][0:2] == [
        "--mirror",
        "ftp://me:***@localhost/there",
    ]
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [p for p in files if b"se:cr" in p.read_bytes() or b"cr@et" in p.read_bytes()] == []


def test_each_seed_has_a_mirror_of_its_own_and_a_new_run_none(tmp_path):
    several = run_in(tmp_path / "runs", mirror="s3://bucket/runs/", resume="latest", seeds=(3, 4))
    one = run_of(several, 4, tmp_path / "runs")
    assert (one.mirror, one.resume) == ("s3://bucket/runs/seed4", "latest")
    assert run_of(several, 4, None).mirror is None
    (tmp_path / "config.yaml").write_text("mirror: s3://bucket/run\nlr: 0.1\n")
    assert values_in(A2C, tmp_path / "config.yaml") == {"lr": 0.1}
    with pytest.raises(ConfigError, match=r"mirror='s3://bucket' is not for a sweep"):
        Sweep(A2C(**OPTIONS, mirror="s3://bucket"), SweepOptions(run_dir=tmp_path / "sweep"))


def test_a_replay_and_a_branch_do_not_write_to_the_mirror(tmp_path):
    (tmp_path / "script.py").write_text("import argparse")
    run = RunDir.create(tmp_path / "run")
    argv = ["--mirror", "s3://bucket/run", "--lr", "1", "--mirror-keep=2"]
    run.update(script=str(tmp_path / "script.py"), module=None, argv=argv, cwd=str(tmp_path))
    assert command_again(run.path, ["--to"], trust=True, other=True)[0][2:] == ["--lr", "1", "--to"]
    assert command_again(run.path, [], trust=True)[0][2:] == argv


PPO = Path(__file__).parents[2] / "recipes/ppo_cartpole.py"
WORDS = (
    *("--total-frames", "16384", "--save-interval", "1024", "--eval-episodes", "2"),
    *("--stop-at", "1000", "--logger", "csv", "--no-progress-bar"),
)


@pytest.mark.slow
def test_a_killed_run_whose_disk_is_lost_goes_on_from_its_mirror(tmp_path):
    straight, run, there = tmp_path / "straight", tmp_path / "run", tmp_path / "there"
    mirrored = ("--mirror", f"file://{there}", "--resume", "latest")

    def begin(place: Path, *options: str) -> subprocess.Popen[bytes]:
        command = [executable(), str(PPO), "--run-dir", str(place), *WORDS, *options]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    process = begin(run, *mirrored)
    wait_for(lambda: committed(there) or process.poll() is not None)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(60) != 0
    last = fetch(f"file://{there}", tmp_path / "look")
    assert isinstance(last, Checkpoint)
    assert 0 < last.frames < 16384
    shutil.rmtree(run)
    assert begin(run, *mirrored).wait(180) == 0
    assert begin(straight).wait(180) == 0
    assert [part.found for part in compare_runs(straight, run, ()) if part.found] == []
