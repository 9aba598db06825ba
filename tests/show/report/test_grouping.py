"""Groups of runs that differ only by their seed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "cli"))

from finished_runs import write_run

from hooktrainer.show.report import group_runs, summarize
from hooktrainer.show.report.grouping import differing
from hooktrainer.store.run_dir import RunDir


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
    assert [group.label for group in groups] == ["toy lr=0.1", "toy lr=0.01"]
    assert [len(group.runs) for group in groups] == [2, 2]
    assert groups[0].finals() == [20.0, 20.0]


def test_experiments_are_groups_of_their_own(tmp_path):
    runs = [write_run(tmp_path / name, experiment=name) for name in ("a", "b")]
    assert [group.label for group in group_runs([summarize(run) for run in runs])] == ["a", "b"]


def test_only_options_that_differ_within_an_experiment_are_told(tmp_path):
    made = [
        write_run(tmp_path / "a1", experiment="a", options={"lr": 0.1, "clip": 0.2}),
        write_run(tmp_path / "a2", experiment="a", options={"lr": 0.2, "clip": 0.2, "trace": 3}),
        write_run(tmp_path / "b", experiment="b", options={"tau": 0.01}),
    ]
    runs = [summarize(run) for run in made]
    assert differing(runs) == ["lr"]
    assert [group.label for group in group_runs(runs)] == ["a lr=0.1", "a lr=0.2", "b"]


def test_a_run_that_ended_before_it_wrote_its_options_differs_in_none(tmp_path):
    begun = RunDir.create(tmp_path / "begun", experiment="toy")
    assert differing([summarize(begun), summarize(write_run(tmp_path / "a"))]) == []
