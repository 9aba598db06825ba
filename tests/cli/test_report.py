"""`hooktrainer report`."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest
from finished_runs import write_run

from hooktrainer.statistics import interval


@pytest.fixture
def two(tmp_path):
    """Two learning rates with eight seeds each; those of 0.1 reach twice the return."""
    random = np.random.default_rng(0)
    for lr in (0.1, 0.2):
        for seed in range(8):
            returns = [10.0, random.normal(20.0 / lr, 10.0)]
            options = {"lr": lr, "env": "Toy-v0", "stop_at": 150.0}
            write_run(tmp_path / f"lr{lr}_{seed}", returns, seed=seed, options=options)
    return tmp_path


def reported(call, *words):
    done = call("report", *words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_json_has_estimates_with_their_intervals(call, two):
    (task,) = reported(call, two)["tasks"]
    first, second = task["groups"]
    assert (task["task"], task["frames"], task["threshold"]) == ("Toy-v0", 200.0, 150.0)
    assert (first["group"], first["seeds"]) == ("lr 0.1", list(range(8)))
    assert first["iqm"] == vars(interval(np.array(first["scores"])))
    assert first["mean"]["low"] is None
    assert first["mean"]["method"] == "8 seeds: no interval for the mean"
    assert first["frames_to_threshold"]["reached"] == 8
    assert second["frames_to_threshold"]["reached"] == 0
    (one,) = task["comparisons"]
    assert (one["separated"], one["verdict"]) == (True, "lr 0.1 is better than lr 0.2")


def test_runs_that_are_left_out_are_listed(call, two):
    broken = write_run(two / "x", (1.0,), seed=9, status="failed", options={"lr": 0.1})
    empty = write_run(two / "y", (math.nan,), seed=10, options={"lr": 0.1})
    done = call("report", two)
    assert f"left out: {broken.path}: it failed at 100 frames" in done.err
    assert f"left out: {empty.path}: it has no eval/return" in done.err
    left = reported(call, two)["left_out"]
    assert [one["run"] for one in left] == [str(broken.path), str(empty.path)]


def test_the_page_is_written(call, two, tmp_path):
    done = call("report", two, "-o", tmp_path / "deep" / "report.html")
    assert done.code == 0
    assert "wrote" in done.err
    page = (tmp_path / "deep" / "report.html").read_text()
    assert "lr 0.1 is better than lr 0.2" in page


def test_the_page_is_written_although_the_reader_of_the_table_left(call, two, monkeypatch):
    reads, writes = os.pipe()
    os.close(reads)  # as head does
    with open(writes, "w") as unread:
        monkeypatch.setattr("sys.stdout", unread)
        call("report", two, "-o", two / "report.html")
    assert (two / "report.html").exists()


@pytest.mark.parametrize(
    ("env", "rates", "reason"),
    [
        ("Acrobot-v1", [0.1], "no group has a seed in each of them."),
        ("Toy-v0", [0.1, 0.2], "no reference scores for Toy-v0;"),
        ("", [0.1, 0.2], "no reference scores for runs without an environment;"),
        ("Acrobot-v1", [0.1, 0.2], None),
    ],
)
def test_why_nothing_is_over_all_tasks(call, tmp_path, env, rates, reason):
    for name, its in {"CartPole-v1": [0.1, 0.2], env: rates}.items():
        for lr in its:
            write_run(tmp_path / f"{name}{lr}", options={"env": name, "lr": lr})
    done = call("report", tmp_path)
    assert done.code == 0
    assert ("all tasks, normalized" in done.out) == (reason is None)
    assert f"nothing over all tasks: {reason}" in done.err or reason is None


@pytest.fixture
def beside_a_sweep(tmp_path):
    """A run, and a sweep of two trials that was confirmed."""
    write_run(tmp_path / "first", seed=0)
    for place in ("trial0/seed1000000000", "trial1/seed1000000000", "confirm/default/seed0"):
        write_run(tmp_path / "my sweep" / place, (1.0, 90.0), seed=int(place.split("seed")[1]))
    (tmp_path / "my sweep" / ".sweep").touch()
    return tmp_path


def test_runs_of_a_sweep_are_reported_only_if_it_is_named(call, beside_a_sweep):
    done = call("report", beside_a_sweep, "--json")
    ((group,),) = [task["groups"] for task in json.loads(done.out)["tasks"]]
    assert group["scores"] == [[20.0]]
    assert done.err.count("\n") == 1
    assert f"hooktrainer report '{beside_a_sweep / 'my sweep'}'" in done.err
    done = call("report", beside_a_sweep / "my sweep", "--json")
    ((group,),) = [task["groups"] for task in json.loads(done.out)["tasks"]]
    assert group["scores"] == [[90.0]]
    assert done.err.count("\n") == 1  # the reason is said once


def test_runs_of_a_sweep_are_listed_only_if_it_is_named(call, beside_a_sweep):
    done = call("runs", beside_a_sweep, "--json")
    assert [run["path"] for run in json.loads(done.out)] == [str(beside_a_sweep / "first")]
    assert f"hooktrainer report '{beside_a_sweep / 'my sweep'}'" in done.err
    assert len(json.loads(call("runs", beside_a_sweep / "my sweep", "--json").out)) == 3
