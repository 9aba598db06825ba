"""Groups of runs that differ only by their seed."""

from __future__ import annotations

import shutil

from finished_runs import write_run

from hooktrainer import RunDir
from hooktrainer.cli import main
from hooktrainer.show import group_runs, summarize
from hooktrainer.show.report.grouping import branches


def test_runs_that_differ_only_by_seed_and_place_are_a_group(tmp_path):
    runs = [
        write_run(
            tmp_path / f"{lr}_{seed}",
            seed=seed,
            options={"lr": lr, "run_dir": f"{seed}", "workers": 2 * seed},
        )
        for lr in (0.1, 0.01)
        for seed in (0, 1)
    ]
    groups = group_runs([summarize(run) for run in runs])
    assert [group.label for group in groups] == ["lr 0.1", "lr 0.01"]
    assert [len(group.runs) for group in groups] == [2, 2]
    assert groups[0].finals() == [20.0, 20.0]


def test_only_options_that_differ_within_an_experiment_are_told(tmp_path, capsys):
    made = [
        write_run(tmp_path / "a1", experiment="a", options={"lr": 0.1, "clip": 0.2}),
        write_run(tmp_path / "a2", experiment="a", options={"lr": 0.2, "clip": 0.2, "trace": 3}),
        write_run(tmp_path / "b", experiment="b", options={"tau": 0.01}),
    ]
    runs = [summarize(run) for run in made]
    assert main(["runs", str(tmp_path)]) == 0
    heads = capsys.readouterr().out.splitlines()[1].strip("┃").split("┃")
    assert [head.strip() for head in heads][-2:] == ["age", "lr"]
    assert [group.label for group in group_runs(runs)] == ["a lr 0.1", "a lr 0.2", "b"]


def labels(tmp_path, *options, **fields):
    runs = [write_run(tmp_path / str(n), options=own, **fields) for n, own in enumerate(options)]
    return [group.label for group in group_runs([summarize(run) for run in runs])]


def test_evaluation_and_length_do_not_separate_groups(tmp_path):
    runs = [
        write_run(tmp_path / str(seed), seed=seed, options={"lr": 0.1, **own})
        for seed, own in enumerate(
            [
                {"seeds": None, "eval_interval": 5, "total_frames": 100},
                {"seeds": "own", "eval_episodes": 7, "stop_at": 3.0, "tuned": False},
                {"max_grad_norm": None},  # which the others lack, being older
            ]
        )
    ]
    (group,) = group_runs([summarize(run) for run in runs])
    assert (group.label, len(group.runs)) == ("toy", 3)


def test_the_longer_of_two_runs_of_a_seed_counts(tmp_path):
    long = write_run(tmp_path / "long", options={"total_frames": 1000})
    trial = write_run(tmp_path / "trial", options={"total_frames": 10})
    for run, total in ((long, 1000), (trial, 10)):
        run.update(total_frames=total)
    (group,) = group_runs([summarize(run) for run in (long, trial)])
    assert [run.path for run in group.runs] == [long.path]
    assert [run.path for run, _ in group.repeats] == [trial.path]


def test_of_runs_with_the_same_plan_the_one_with_more_frames_counts(tmp_path):
    whole = write_run(tmp_path / "whole", (1.0, 2.0, 3.0), options={"lr": 0.1})
    solved = write_run(tmp_path / "solved", (1.0, 2.0), options={"lr": 0.1, "stop_at": 2.0})
    for run in (whole, solved):
        run.update(total_frames=300)
    solved.update(updated="2099-01-01T00:00:00+00:00")
    (group,) = group_runs([summarize(run) for run in (whole, solved)])
    assert [run.path for run in group.runs] == [whole.path]


def test_hooks_of_ones_own_separate_groups(tmp_path):
    assert labels(tmp_path, {"hook": []}, {"hook": ["mine.py:Halve"]}) != ["toy"]


def test_a_run_whose_options_a_resume_changed_is_no_seed_of_those_that_had_them(tmp_path):
    whole, changed = {"lr": 0.1}, {"lr": 0.1, "allow_change": ["lr", "save-interval"]}
    runs = [
        write_run(tmp_path / f"{seed}", seed=seed, options=own)
        for seed, own in enumerate(
            [whole, whole, changed, whole | {"allow_change": ["log-interval"]}]
        )
    ]
    groups = group_runs([summarize(run) for run in runs])
    assert [[run.seed for run in group.runs] for group in groups] == [[0, 1, 3], [2]]
    assert groups[1].label == "changed lr"


def test_a_stopped_replay_does_not_replace_the_run_that_it_copies(tmp_path):
    run = write_run(tmp_path / "a", options={"lr": 0.1})
    shutil.copytree(run.path, tmp_path / "a-from-100")
    replay = RunDir(tmp_path / "a-from-100")
    replay.update(status="stopped", frames=200)
    parent = {"path": str(run.checkpoints / "step_100"), "run_id": run.run_id, "frames": 100}
    branch = write_run(tmp_path / "branch", options={"lr": 0.2})
    branch.update(forked_from=parent)
    runs = [summarize(one) for one in (run, replay, branch)]
    own, _ = group_runs(runs)
    assert [one.path for one in own.runs] == [run.path]
    assert branches(runs) == [str(run.path), f"└ at 100, lr 0.2: {branch.path}"]


def test_a_label_is_what_differs_from_the_baseline_rounded(tmp_path):
    base = {"lr": 0.003, "gamma": 0.99, "cells": [64], "clip": 0.2, "norm": 0.5}
    found = labels(
        tmp_path,
        base | {"lr": 0.0010000000474974513},
        base,
        base | {"gamma": 0.9, "norm": None},
        base | {"lr": 0.1, "gamma": 0.9, "cells": [8, 8], "clip": 0.1},
    )
    assert found == [
        "lr 0.001",
        "toy",
        "gamma 0.9, norm None",
        "lr 0.1, gamma 0.9, cells [8, 8] and 1 more",
    ]


def test_a_label_of_wrappers_is_their_names(tmp_path):
    last = [f"hooktrainer.collect:Last{what}" for what in ("Reward", "Action")]
    found = labels(tmp_path, {"wrappers": []}, {"wrappers": last[:1]}, {"wrappers": last})
    assert found == ["wrappers []", "wrappers LastReward", "wrappers LastReward LastAction"]


def test_labels_are_unique(tmp_path):
    """Or the seeds of one would be lost among those of the other."""
    same = [{"lr": lr} for lr in (0.1, 0.10000001, 0.10000002)]
    assert labels(tmp_path, *same) == ["lr 0.1", "lr 0.1 (2)", "lr 0.1 (3)"]
