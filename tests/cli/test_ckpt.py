"""`hooktrainer ckpt list|show|verify|diff`."""

from __future__ import annotations

import json
import shutil

import pytest
from cli_runs import damage

from hooktrainer import RunDir
from hooktrainer.store import Checkpoint


def test_list_shows_every_checkpoint_and_which_is_latest_and_best(call, make_run):
    done = call("ckpt", "list", make_run())
    assert done.code == 0
    rows = [line for line in done.out.splitlines() if "step_" in line]
    assert ["step_000000000100" in rows[0], "100" in rows[0]] == [True, True]
    assert [("latest" in row, "best" in row) for row in rows] == [
        (False, False),
        (False, True),
        (True, False),
    ]
    assert "3 checkpoints in" in done.out


def test_list_shows_what_is_damaged_and_what_was_set_aside(call, make_run):
    run = make_run()
    checkpoints = run / "checkpoints"
    (checkpoints / "step_000000000200" / "manifest.json").write_text("{}")
    (checkpoints / "step_000000000100").rename(checkpoints / "aside-step_000000000100-abcd")
    entries = json.loads(call("ckpt", "list", run, "--json").out)
    states = [(entry["state"], entry["path"].rsplit("/", 1)[1][:10]) for entry in entries]
    assert states == [
        ("committed", "step_00000"),
        ("damaged", "step_00000"),
        ("set aside", "aside-step"),
    ]
    assert "manifest.json: it does not match its own hash" in call("ckpt", "list", run).out


def test_show_prints_counters_metrics_options_and_parts(call, make_run):
    run = make_run()
    out = call("ckpt", "show", run).out
    for text in ("step_000000000300", "eval/return", "lr", "loss_module", "hook/optimizer"):
        assert text in out
    shown = json.loads(call("ckpt", "show", f"{run}@best", "--json").out)
    assert (shown["frames"], shown["config"]) == (200, {"lr": 0.1})
    assert shown["parts"]["loss_module"] == {"tensors": 1, "bytes": 8}
    assert shown["parts"]["collector"] == {"tensors": 0, "bytes": 0}
    assert shown["parts"]["rng"]["tensors"] == 2


def test_verify_names_every_damaged_file(call, make_run):
    run = make_run()
    file = damage(run / "checkpoints" / "step_000000000300")
    (run / "checkpoints" / "step_000000000300" / "state.json").write_bytes(b"{}")
    (run / "checkpoints" / "step_000000000100" / "manifest.json").unlink()
    done = call("ckpt", "verify", run)
    assert done.code == 1
    assert "state.json has 2 bytes" in done.out
    assert f"{file} does not match its hash" in done.out
    assert "manifest.json is missing" in done.out
    assert "2 of 3 checkpoints damaged" in done.out
    verdicts = json.loads(call("ckpt", "verify", run, "--json").out)
    assert [verdict["intact"] for verdict in verdicts] == [False, True, False]


def test_verify_leaves_out_what_its_run_deletes_meanwhile(call, make_run, monkeypatch):
    verify = Checkpoint.verify

    def late(checkpoint):
        if checkpoint.frames == 100:
            shutil.rmtree(checkpoint.path)
        verify(checkpoint)

    monkeypatch.setattr(Checkpoint, "verify", late)
    done = call("ckpt", "verify", make_run())
    assert (done.code, "none of 2 checkpoints damaged" in done.out) == (0, True)


def test_diff_prints_only_differences(call, make_run):
    run, other = make_run(), make_run("other", weight=1.0, seconds=2.0)
    same = call("ckpt", "diff", f"{run}@200", f"{run}@200")
    assert (same.code, same.out) == (0, "identical\n")
    done = call("ckpt", "diff", run, other, "--json", "--clock")
    paths = [difference["path"] for difference in json.loads(done.out)]
    assert done.code == 1
    assert "components/progress/seconds" in paths
    assert "components/loss_module/weight" in paths
    table = call("ckpt", "diff", run, other, "--limit", 1, "--clock").out
    assert f"{len(paths)} differences, {len(paths) - 1} not shown" in table


def test_a_checkpoint_of_another_run_is_marked(call, make_run):
    run, other = make_run(), make_run("other", (1.0,) * 7)
    source = other / "checkpoints" / "step_000000000700"
    shutil.copytree(source, run / "checkpoints" / source.name)
    theirs = RunDir(other).run_id

    entries = json.loads(call("ckpt", "list", run, "--json").out)
    assert [(e["state"], e["frames"]) for e in entries] == [
        *(("committed", frames) for frames in (100, 200, 300)),
        ("foreign", 700),
    ]
    assert entries[-1]["run_id"] == theirs
    assert f"of another run, {theirs}" in call("ckpt", "list", run).out
    assert json.loads(call("ckpt", "show", f"{run}@latest", "--json").out)["frames"] == 300

    done = call("ckpt", "verify", run)
    assert done.code == 1
    assert f"intact, but of another run, {theirs}" in done.out
    assert "none of 4 checkpoints damaged, 1 of another run" in done.out
    verdicts = json.loads(call("ckpt", "verify", run, "--json").out)
    assert [verdict["foreign"] for verdict in verdicts] == [None, None, None, theirs]

    assert call("ckpt", "prune", run, "--keep-last", 1, "--yes").code == 0
    listing = json.loads(call("ckpt", "list", run, "--json").out)
    assert [(e["state"], e["frames"]) for e in listing] == [
        ("committed", 200),  # the best
        ("committed", 300),
        ("foreign", 700),
    ]


@pytest.mark.parametrize(
    "words", [["ckpt", "list"], ["play"], ["resume"], ["watch"], ["sync"], ["policies", "list"]]
)
def test_a_missing_run_names_the_nearest(call, tmp_path, monkeypatch, words):
    (tmp_path / "runs" / "firstcopy").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in ("firstcop", "runs/fistcopy"):
        done = call(*words, name)
        assert done.code == 2
        assert done.err == f"error: there is no run {name}. Did you mean runs/firstcopy?\n"
