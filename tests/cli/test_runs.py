"""`hooktrainer runs`: the list of runs, and their comparison."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from finished_runs import write_run

from hooktrainer.cli import output
from hooktrainer.store import CheckpointManager


def listed(call, *words):
    done = call("runs", *words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.fixture
def six(tmp_path):
    """Two learning rates with three seeds each; those of 0.1 reach twice the return."""
    for lr in (0.1, 0.2):
        for seed in range(3):
            returns = [(seed + 1) * value / lr for value in (1.0, 2.0)]
            write_run(tmp_path / f"lr{lr}_{seed}", returns, seed=seed, options={"lr": lr})
    return tmp_path


def test_a_run_is_listed_with_its_state(call, tmp_path):
    run = write_run(tmp_path / "a", (10.0, 30.0, 20.0), seed=3, options={"lr": 0.1})
    (entry,) = listed(call, run.path)
    wanted = {
        "path": str(run.path),
        "experiment": "toy",
        "seed": 3,
        "status": "finished",
        "frames": 300,
        "total_frames": 1000,
        "optim_steps": 7,
        "seconds": 2.5,
        "metric": "eval/return",
        "last": 20.0,
        "best": 30.0,
    }
    assert {key: entry[key] for key in wanted} == wanted
    assert entry["options"]["lr"] == 0.1
    table = call("runs", run.path).out
    for text in ("toy", "finished", "300", "2.5 s", "eval/return", "30"):
        assert text in table


def test_filters_select_runs(call, six):
    write_run(six / "other", experiment="other", status="failed")
    assert len(listed(call, six, "--where", "experiment=t*")) == 6
    assert [e["experiment"] for e in listed(call, six, "--where", "status=failed")] == ["other"]
    assert len(listed(call, six, "--where", "lr=0.2")) == 3
    assert len(listed(call, six, "--where", "lr=0.2", "--where", "seed=1")) == 1
    assert listed(call, six, "--where", "lr=7") == []
    write_run(six / "plain", options={"memory": None})
    assert len(listed(call, six, "--where", "memory=none")) == 8  # older runs lack the option
    assert listed(call, six, "--where", "memory=gru") == []
    assert "Did you mean memory?" in call("runs", six, "--where", "memori=gru").err


def test_sorting(call, six):
    def best(*words):
        return [entry["best"] for entry in listed(call, six, "--sort", "best", *words)]

    assert best() == sorted(best(), reverse=True)  # the best first
    assert best("--reverse") == sorted(best())
    assert best("--minimize") == sorted(best("--minimize"))
    assert [e["options"]["lr"] for e in listed(call, six, "--sort", "lr")] == [0.1] * 3 + [0.2] * 3


def test_names_are_printed_verbatim(call, tmp_path):
    """What looks like markup of the library that prints, a link for example, is a name."""
    for value in (1, 2):
        path = tmp_path / str(value)
        options = {"[/x]": value, "[link=http://a]b": value, ":smile:": value}
        write_run(path, seed=0, options=options).update(reason="[red]", experiment="[bold]:smile:")
    for words in (("runs", tmp_path), ("watch", tmp_path / "1", "--once")):
        done = call(*words)
        assert done.code == 0, done.err
        assert "[bold]:smile:" in done.out
    table = call("runs", tmp_path).out
    assert all(name in table for name in options), table
    assert "[red]" in call("watch", tmp_path / "1", "--once").out


def test_curves_are_drawn_in_the_terminal(call, six):
    out = call("runs", six, "--curves").out
    assert "eval/return over frames" in out
    # seeds 0, 1, 2 end at 20, 40, 60 and 10, 20, 30
    rows = [re.split(r"\s*│\s*", line)[1:-1] for line in out.splitlines() if " ± " in line]
    assert rows == [
        ["lr 0.1", "3", "200", "▃█", "40 ± 20"],
        ["lr 0.2", "3", "200", "▁▃", "20 ± 10"],
    ]


def test_a_run_on_data_counts_samples(call, tmp_path):
    path = write_run(tmp_path / "a", unit="samples").path
    manager = CheckpointManager(path / "checkpoints")
    manager.save({}, frames=300, optim_steps=1)
    manager.close()
    for words in (("runs",), ("runs", "--curves"), ("report",), ("ckpt", "list")):
        done = call(*words, path)
        assert "samples" in done.out
        assert "frames" not in done.out
    write_run(tmp_path / "b")
    assert "frames or samples" in call("runs", tmp_path).out


def test_a_narrow_terminal_empties_no_column(call, monkeypatch, tmp_path):
    console = output.Console
    monkeypatch.setattr(output, "Console", lambda **options: console(**options | {"width": 80}))
    for value in "QZ":
        write_run(tmp_path / value.lower(), options={f"o{n}": value for n in range(20)})
    out = call("runs", tmp_path).out
    assert (out.count("Q"), out.count("Z")) == (20, 20)


@pytest.mark.parametrize("file", ["config.yaml", "metrics.csv"])
def test_a_damaged_file_hides_no_other_run(call, six, file):
    (six / "lr0.1_0" / file).write_text("{")
    *others, broken = sorted(listed(call, six), key=lambda entry: entry["status"])
    assert [entry["status"] for entry in others] == 5 * ["finished"]
    assert broken["status"] == "unknown"
    assert f"lr0.1_0/{file}" in broken["reason"]
    drawn = call("runs", six, "--curves")
    assert (drawn.code, drawn.err) == (0, f"not read: {broken['reason']}\n")
    assert broken["reason"] in call("report", six, "--unfinished").err


def test_the_parent_of_a_fork_is_shown(call, tmp_path):
    parent = write_run(tmp_path / "parent")
    origin = {"run_id": parent.run_id, "path": "/gone/checkpoints/step_000000000200"}
    child = write_run(tmp_path / "child")
    child.update(forked_from={**origin, "frames": 200})
    entries = {Path(entry["path"]).name: entry for entry in listed(call, tmp_path)}
    assert entries["parent"]["id"] == parent.run_id != entries["child"]["id"]
    assert entries["parent"]["forked_from"] is None
    assert entries["child"]["forked_from"] == {**origin, "frames": 200}
    assert "forked" not in call("runs", tmp_path / "parent").out
    assert "forked from" in call("runs", tmp_path).out
    out = call("runs", tmp_path, "--curves").out  # a group of its own
    assert f"toy from {tmp_path / 'parent'}@200 " in out
    parent.path.rename(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    assert "toy from /gone@200" in call("runs", tmp_path, "--curves").out
