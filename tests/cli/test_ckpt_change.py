"""Thinning checkpoints out, and going back to one."""

from __future__ import annotations

import io
import json
import os
import sys

import pytest
from cli_runs import frames

from hooktrainer.cli.ckpt_change import parse_policy, parse_size
from hooktrainer.errors import ConfigError
from hooktrainer.store import (
    Best,
    CheckpointManager,
    EveryFrames,
    EveryHours,
    Last,
    MaxBytes,
)

RETURNS = (5.0, 1.0, 2.0, 4.0, 3.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_every_rule_becomes_its_policy():
    policy = parse_policy(
        latest=5,
        best=["3:eval/return", "1:loss/a:min", "2:a:b:max"],
        every_frames=1_000,
        every_hours=0.5,
        max_bytes="10GB",
    )
    parts = []
    while hasattr(policy, "left"):
        parts.insert(0, policy.right)
        policy = policy.left
    assert [policy, *parts] == [
        Best(3, "eval/return"),
        Best(1, "loss/a", "min"),
        Best(2, "a:b"),
        Last(5),
        EveryFrames(1_000),
        EveryHours(0.5),
        MaxBytes(10_000_000_000),
    ]


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("500", 500), ("1kB", 1000), ("1.5MB", 1_500_000), ("2 GiB", 2 * 1024**3), ("3T", 3 * 10**12)],
)
def test_a_size_is_read_as_people_write_it(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "say what to keep"),
        ({"best": ["eval/return"]}, "write N:METRIC"),
        ({"max_bytes": "plenty"}, "500MB"),
        ({"latest": 0}, "n=0"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule, message):
    with pytest.raises(ConfigError, match=message):
        parse_policy(**rule)


def test_prune_keeps_what_a_rule_keeps_and_the_best(call, make_run):
    run = make_run(returns=RETURNS)
    done = call("ckpt", "prune", run, "--keep-last", 2, "--every-frames", 300, "--yes")
    assert done.code == 0
    assert "1 checkpoint deleted" in done.out
    assert frames(run) == [100, 300, 400, 500]
    assert call("ckpt", "prune", run, "--keep-last", 1, "--yes").code == 0
    assert frames(run) == [100, 500]
    assert "nothing to delete" in call("ckpt", "prune", run, "--keep-last", 1).out


def test_prune_by_another_metric_keeps_the_best_of_the_run_too(call, make_run):
    run = make_run(returns=RETURNS)
    call("ckpt", "prune", run, "--keep-best", "2:eval/return:min", "--yes")
    assert frames(run) == [100, 200, 300, 500]


def test_a_dry_run_changes_nothing(call, make_run):
    run = make_run(returns=RETURNS)
    done = call("ckpt", "prune", run, "--keep-last", 2, "--dry-run")
    assert done.code == 0
    fates = [line.split("│")[-2].strip() for line in done.out.splitlines() if "step_" in line]
    assert fates == ["kept", "deleted", "deleted", "kept", "kept"]
    assert call("ckpt", "rollback", f"{run}@300", "--dry-run", "--discard").code == 0
    assert frames(run) == [100, 200, 300, 400, 500]


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 2), ("\n", 1, 5), ("", 1, 5)])
def test_a_person_is_asked(call, make_run, monkeypatch, answer, code, left):
    run = make_run(returns=RETURNS)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    done = call("ckpt", "prune", run, "--keep-last", 1)
    assert "Delete 3 checkpoints? [y/N]" in done.err
    assert (done.code, len(frames(run))) == (code, left)


def test_where_nobody_can_be_asked_yes_is_needed(call, make_run, monkeypatch):
    run = make_run()
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    done = call("ckpt", "rollback", f"{run}@100")
    assert (done.code, frames(run)) == (2, [100, 200, 300])
    assert "--yes" in done.err


def test_rollback_sets_the_later_ones_aside(call, make_run):
    run = make_run(returns=RETURNS)
    done = call("ckpt", "rollback", f"{run}@300", "--yes")
    assert (done.code, frames(run)) == (0, [100, 200, 300])
    (aside,) = (run / "checkpoints").glob("aside-step_000000000500-*")
    assert call("ckpt", "show", aside).code == 0


def fates(done) -> dict[int, str]:
    return {row["frames"]: row["fate"] for row in json.loads(done.out)}


def test_json_tells_the_fate_of_each_and_nothing_else(call, make_run):
    run = make_run(returns=RETURNS)
    kept = dict.fromkeys((100, 200, 300, 400, 500), "kept")
    prune = ("ckpt", "prune", run, "--keep-last", 2, "--every-frames", 200, "--json")
    pruned = kept | {300: "deleted"}
    assert fates(call(*prune, "--dry-run")) == pruned
    assert fates(call(*prune, "--yes")) == pruned
    del kept[300]
    assert fates(call(*prune, "--yes")) == kept
    back = ("ckpt", "rollback", f"{run}@200", "--json", "--yes")
    assert fates(call(*back)) == kept | {400: "set aside", 500: "set aside"}
    assert fates(call(*back)) == {100: "kept", 200: "kept"}


def test_rollback_can_discard_the_later_ones(call, make_run):
    run = make_run(returns=RETURNS)
    assert call("ckpt", "rollback", f"{run}@best", "--discard", "--yes").code == 0
    assert frames(run) == [100]
    assert list((run / "checkpoints").glob("aside-*")) == []


def test_rollback_to_the_latest_says_what_there_is(call, make_run):
    done = call("ckpt", "rollback", make_run(), "--yes")
    assert done.code == 0
    assert "RUN@FRAMES: 100, 200." in done.out


@pytest.mark.parametrize("words", [["prune", "{}", "--keep-last", 1], ["rollback", "{}@100"]])
def test_a_run_that_is_being_trained_is_refused(call, make_run, words):
    run = make_run()
    with CheckpointManager(run / "checkpoints"):
        done = call("ckpt", *(str(word).format(run) for word in words), "--yes")
    assert (done.code, frames(run)) == (2, [100, 200, 300])
    assert f"is in use by a live run (process {os.getpid()} on " in done.err
    assert done.err.count("\n") == 1
