"""The directory of a run: its name, its two files, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from hooktrainer import RunDir
from hooktrainer.errors import ConfigError
from hooktrainer.store import CheckpointManager, find_runs, provenance


@dataclass
class Optim:
    lr: float = 0.1


@dataclass
class Config:
    env: str = "CartPole-v1"
    out: Path = Path("a/b")
    optim: Optim = field(default_factory=Optim)


def test_the_default_name_holds_experiment_time_and_seed(tmp_path):
    run = RunDir.create(experiment="ppo", seed=7, root=tmp_path)
    assert run.path.parent == tmp_path / "ppo"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_seed7", run.path.name)


def test_runs_started_at_once_do_not_collide(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "origin", dict)
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: RunDir.create(seed=0, root=tmp_path), range(16)))
    assert len({run.path for run in runs}) == 16
    assert all(run.read()["status"] == "running" for run in runs)


def test_run_json_says_how_the_run_stands(tmp_path):
    run = RunDir.create(tmp_path / "r", experiment="ppo", seed=1)
    state = run.read()
    assert (state["status"], state["experiment"], state["seed"]) == ("running", "ppo", 1)
    assert (state["frames"], state["optim_steps"], state["metrics"]) == (0, 0, {})
    expected = {"python", "torch", "tensordict", "torchrl", "gymnasium", "numpy", "hooktrainer"}
    assert set(state["versions"]) == expected
    assert {"git_commit", "git_dirty", "command", "started", "updated"} <= set(state)

    run.update(status="finished", frames=2000, metrics={"eval/return": torch.tensor(500.0)})
    run.update(metrics={"eval/episodes": np.int64(100)}, seconds=1.5, reason="solved")
    state = run.read()
    assert (state["status"], state["reason"], state["frames"]) == ("finished", "solved", 2000)
    assert state["metrics"] == {"eval/return": 500.0, "eval/episodes": 100}


def test_run_json_is_valid_json_whatever_the_metrics(tmp_path):
    run = RunDir(tmp_path)
    run.update(metrics={"a": float("nan"), "b": float("-inf"), "c": [float("inf")]})

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    metrics = json.loads(run.run_file.read_text(), parse_constant=refuse)["metrics"]
    assert metrics == {"a": "nan", "b": "-inf", "c": ["inf"]}
    assert float(metrics["b"]) == float("-inf")


def test_what_a_killed_process_left_half_written_is_deleted_when_the_run_goes_on(tmp_path):
    run = RunDir.create(tmp_path)
    for name in (".tmp-run.json-0a1b2c3d", ".tmp-exception.pt-0a1b2c3d"):
        (tmp_path / name).write_text("{")
    (tmp_path / ".notes").write_text("mine")
    run.begin()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".notes", "run.json"]


def test_config_yaml_holds_the_options(tmp_path):
    run = RunDir(tmp_path)
    assert run.read_config() == {}
    run.write_config(Config())
    expected = {"env": "CartPole-v1", "out": "a/b", "optim": {"lr": 0.1}}
    assert run.read_config() == expected
    assert list(yaml.safe_load(run.config_file.read_text())) == ["env", "out", "optim"]
    run.write_config({"a": {"b": 1}})
    assert run.read_config() == {"a": {"b": 1}}
    with pytest.raises(TypeError, match="a configuration is"):
        run.write_config(3)


@pytest.mark.parametrize("trace", ["run.json", "metrics.csv", "checkpoints/step/", "tensorboard/"])
def test_a_directory_that_holds_a_run_is_refused(tmp_path, trace):
    path = tmp_path / trace
    path.mkdir(parents=True) if trace.endswith("/") else path.write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FileExistsError, match="already holds a run") as caught:
        RunDir.create(tmp_path)
    assert "--resume latest" in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_checkpoints_may_be_linked_to_another_disk_beforehand(tmp_path):
    for directory in ("disk", "run"):
        (tmp_path / directory).mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "disk")
    assert RunDir.create(tmp_path / "run").read()["status"] == "running"


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "r").write_text("")
    with pytest.raises(FileExistsError, match="is a file"):
        RunDir.create(tmp_path / "r")


def test_resume_keeps_what_the_run_knew(tmp_path):
    first = RunDir.create(tmp_path / "r", experiment="ppo", seed=3)
    first.update(status="interrupted", reason="SIGTERM", frames=500, metrics={"a": 1.0})
    started = first.read()["started"]
    second = RunDir.create(tmp_path / "r", resume=True)
    state = second.read()
    assert (state["status"], state["reason"], state["frames"]) == ("running", None, 500)
    assert (state["experiment"], state["seed"], state["started"]) == ("ppo", 3, started)
    assert state["metrics"] == {"a": 1.0}
    assert len(state["resumed"]) == 1


@pytest.mark.parametrize("there", [False, True])
def test_resuming_nothing_is_refused_and_makes_nothing(tmp_path, there):
    path = tmp_path / "r"
    if there:
        path.mkdir()
    with pytest.raises(FileNotFoundError, match="holds no run" if there else "does not exist"):
        RunDir.create(path, resume=True)
    assert path.exists() == there
    for options, why in (({"resume": True}, "needs the path"), ({"seed": -1}, "seed=-1: pass an")):
        with pytest.raises(ValueError, match=why):
            RunDir.create(**options, root=tmp_path)
    assert len(list(tmp_path.iterdir())) == there


@pytest.mark.parametrize("target", ["elsewhere.csv", "nowhere"])
def test_metrics_that_are_a_link_are_refused_when_a_run_is_resumed(tmp_path, target):
    run = RunDir.create(tmp_path / "r")
    (tmp_path / "elsewhere.csv").write_text("step,name,value\n")
    run.metrics.symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match=r"metrics\.csv is a link") as caught:
        RunDir.create(run.path, resume=True)
    assert "\n" not in str(caught.value)


def test_runs_are_found_in_the_order_they_were_started(tmp_path):
    runs = [RunDir.create(tmp_path / name, experiment=name[0]) for name in ("b1", "a1", "b2")]
    for number, run in enumerate(runs):
        run.update(started=f"2025-01-0{3 - number}T00:00:00+00:00")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    assert [run.path.name for run in find_runs(tmp_path)] == ["b2", "a1", "b1"]
    assert [run.path.name for run in find_runs(tmp_path, "b")] == ["b2", "b1"]
    assert find_runs(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("text", "why"), [("{", "it is not valid JSON"), ("null", "it holds a NoneType")]
)
def test_a_broken_run_json_is_named(tmp_path, text, why):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=rf"run\.json: {why}"):
        RunDir(tmp_path).read()


def test_a_run_that_never_came_to_write_its_run_json_is_no_reason_either(tmp_path):
    with (
        CheckpointManager(tmp_path / "checkpoints"),
        pytest.raises(FileExistsError, match="already holds a run"),
    ):
        RunDir.create(tmp_path)
    assert RunDir.create(tmp_path).read()["status"] == "running"


def test_a_run_that_another_machine_is_starting_is_left_alone(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".lock").write_text('{"pid": 1, "host": "another"}')
    with pytest.raises(FileExistsError, match="already holds a run"):
        RunDir.create(tmp_path)


def test_a_run_json_that_is_out_of_reach_is_not_written_anew(tmp_path, monkeypatch):
    def refuse(path, *arguments):
        if str(path).endswith("run.json"):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return read(path, *arguments)

    read = os.open
    before = RunDir.create(tmp_path / "run").run_file.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(OSError, match=r"run\.json"):
            RunDir.create(tmp_path / "run", resume=True)
    assert RunDir(tmp_path / "run").run_file.read_text() == before


def test_a_run_that_died_before_its_first_batch_is_no_reason_to_refuse(tmp_path):
    first = RunDir.create(tmp_path / "run", experiment="first", seed=1)
    first.metrics.touch()
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    first.update(pid=gone.pid)
    second = RunDir.create(tmp_path / "run", experiment="second", seed=2)
    assert second.read()["experiment"] == "second"
    assert not second.metrics.exists()
    second.update(pid=gone.pid, frames=64)
    with pytest.raises(FileExistsError, match="already holds a run"):
        RunDir.create(tmp_path / "run")
