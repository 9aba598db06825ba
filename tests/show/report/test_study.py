"""Runs of a report, and those that are left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from finished_runs import orphan, write_run

from hooktrainer.show import read_study, summarize


def study(*runs, **options):
    return read_study([summarize(run) for run in runs], **options)


def test_seeds_of_one_configuration_are_a_group_and_environments_are_tasks(tmp_path):
    runs = [
        write_run(tmp_path / f"{env}{lr}_{seed}", seed=seed, options={"env": env, "lr": lr})
        for env in ("B-v0", "A-v0")
        for lr in (0.1, 0.2)
        for seed in (0, 1, 2)
    ]
    found = study(*runs)
    assert [task.task for task in found.tasks] == ["A-v0", "B-v0"]
    for task in found.tasks:
        assert list(task.groups) == ["lr 0.1", "lr 0.2"]
        assert [list(seeds) for seeds in task.groups.values()] == [[0, 1, 2]] * 2
        assert task.frames == 300
    assert found.left_out == []


def test_two_runs_of_one_seed_count_once(tmp_path):
    first = write_run(tmp_path / "a", (1.0, 2.0), seed=4)
    again = write_run(tmp_path / "b", (1.0, 3.0), seed=4)
    again.update(updated="2099-01-01T00:00:00+00:00")
    found = study(first, again)
    ((seeds,),) = [task.groups.values() for task in found.tasks]
    assert list(seeds) == [4]
    ((path, why),) = found.left_out
    assert path != seeds[4].path
    assert "has the seed and options of" in why


def test_a_run_that_stopped_early_does_not_limit_the_others(tmp_path):
    solved = write_run(tmp_path / "a", (1.0, 500.0), seed=0, status="stopped")
    whole = write_run(tmp_path / "b", (1.0, 2.0, 3.0, 4.0), seed=1)
    (task,) = study(solved, whole).tasks
    assert task.frames == 400


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_an_unfinished_run_is_left_out_with_the_reason(tmp_path, status):
    whole = write_run(tmp_path / "a", (1.0, 2.0, 3.0), seed=0)
    broken = write_run(tmp_path / "b", (1.0,), seed=1, status=status)
    found = study(whole, broken)
    ((path, why),) = found.left_out
    assert path == broken.path
    assert status in why
    assert "100 frames" in why
    assert found.tasks[0].frames == 300
    (counted,) = study(whole, broken, unfinished=True).tasks
    assert counted.frames == 100
    assert list(counted.groups["toy"]) == [0, 1]


def test_a_run_that_died_or_measured_nothing_is_left_out(tmp_path):
    died = orphan(write_run(tmp_path / "a", seed=0))
    blind = write_run(tmp_path / "b", (), seed=1)
    found = study(died, blind)
    assert found.tasks == []
    assert [why.split(":")[0].split(" at ")[0] for _, why in found.left_out] == [
        "it died",
        "it has no eval/return",
    ]


def test_seeds_of_tuning_are_not_reported(tmp_path):
    tuned = write_run(tmp_path / "a", seed=1_000_000_000)
    fresh = write_run(tmp_path / "b", seed=0)
    found = study(tuned, fresh)
    assert list(found.tasks[0].groups["toy"]) == [0]
    ((path, why),) = found.left_out
    assert (path, "tuning" in why) == (tuned.path, True)


def test_places_can_be_the_groups(tmp_path):
    runs = [write_run(tmp_path / d / str(s), seed=s) for d in ("old", "new") for s in (0, 1)]
    assert list(study(*runs).tasks[0].groups) == ["toy"]
    found = study(*runs, places=(tmp_path / "old", tmp_path / "new"))
    assert list(found.tasks[0].groups) == [str(tmp_path / "old"), str(tmp_path / "new")]
    assert found.left_out == []


def test_a_run_counts_for_the_innermost_place_however_it_is_spelled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [write_run(tmp_path / d, seed=0) for d in ("old", "new/best")]
    found = study(*runs, places=(tmp_path, Path("new")))
    groups = {
        name: [one.path for one in its.values()] for name, its in found.tasks[0].groups.items()
    }
    assert groups == {str(tmp_path): [tmp_path / "old"], "new": [tmp_path / "new/best"]}


def test_the_threshold_is_the_one_that_all_runs_stop_at(tmp_path):
    runs = [
        write_run(tmp_path / f"{n}", seed=n, options={"stop_at": 475.0, "env": "A"}) for n in (0, 1)
    ]
    assert study(*runs).tasks[0].threshold == 475.0
    other = write_run(tmp_path / "c", seed=2, options={"stop_at": None, "env": "A"})
    assert study(*runs, other).tasks[0].threshold is None


def test_seconds_follow_the_speed_of_each_window(tmp_path):
    """100 frames at 10 a second, then 100 at 20: two thirds of the time for the first half."""
    run = write_run(tmp_path / "a", (1.0, 2.0))
    text = run.metrics.read_text().replace("200,time/fps,1000.0\n", "")
    run.metrics.write_text(text + "100,time/fps,10.0\n200,time/fps,20.0\n")
    run.update(seconds=30.0)
    clock = study(run).tasks[0].groups["toy"][0].seconds
    assert clock.frames.tolist() == [0, 100, 200]
    assert clock.values.tolist() == pytest.approx([0.0, 20.0, 30.0])


def test_runs_are_compared_at_the_frames_they_share(tmp_path):
    short = write_run(tmp_path / "a", (1.0, 2.0), seed=0, options={"total_frames": 200})
    long = write_run(tmp_path / "b", (1.0, 2.0, 3.0, 4.0), seed=1, options={"total_frames": 400})
    (task,) = study(short, long).tasks
    assert task.frames == 200
    assert [list(seeds) for seeds in task.groups.values()] == [[0, 1]]


def test_a_run_without_a_value_by_these_frames_is_left_out(tmp_path):
    """Or its first value would count, though the run was longer when it had it."""
    short = write_run(tmp_path / "a", (1.0,), seed=0, options={"lr": 0.1})
    late = write_run(tmp_path / "b", (9.0, 9.0), seed=0, options={"lr": 0.2})
    lines = late.metrics.read_text().splitlines(keepends=True)
    late.metrics.write_text("".join(line for line in lines if not line.startswith("100,eval")))
    found = study(short, late)
    assert [list(task.groups) for task in found.tasks] == [["lr 0.1"]]
    ((path, why),) = found.left_out
    assert path == late.path
    assert why == "it has no eval/return up to 100 frames, the fewest that a run has"
