"""`ckpt prune`, `ckpt rollback` and `policies prune`."""

from __future__ import annotations

import io
import os
import re
import sys

import pytest
from outcomes import committed

from hooktrainer.store import CheckpointManager

RETURNS = (5.0, 1.0, 2.0, 4.0, 3.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(make_run):
    return make_run(returns=RETURNS)


def kept(done) -> list[int]:
    return [int(frames) for frames in re.findall(r"step_(\d+).*kept", done.out)]


def test_prune_keeps_what_a_rule_keeps_and_the_best(call, run):
    done = call("ckpt", "prune", run, "--keep-last", 2, "--every-frames", 300, "--yes")
    assert done.code == 0
    assert "1 of 5 deleted" in done.out
    assert committed(run) == [100, 300, 400, 500]
    assert call("ckpt", "prune", run, "--keep-last", 1, "--yes").code == 0
    assert committed(run) == [100, 500]
    assert "nothing to delete" in call("ckpt", "prune", run, "--keep-last", 1).out


@pytest.mark.parametrize(
    ("rule", "stay"),
    [
        (("--keep-best", "2:eval/return:min"), [100, 200, 300, 500]),
        (("--keep-best", "2:eval/return"), [100, 400, 500]),
        (("--keep-best", "2:eval/return:max"), [100, 400, 500]),
    ],
)
def test_every_rule_is_applied(call, run, rule, stay):
    assert kept(call("ckpt", "prune", run, *rule, "--dry-run")) == stay
    assert len(committed(run)) == 5


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 2), ("\n", 1, 5), ("", 1, 5)])
def test_it_asks_at_a_terminal(call, run, monkeypatch, answer, code, left):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    done = call("ckpt", "prune", run, "--keep-last", 1)
    assert "3 of 5 will be deleted. Continue? [y/N]" in done.err
    assert (done.code, len(committed(run))) == (code, left)


def test_without_a_terminal_it_needs_yes(call, run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    done = call("ckpt", "rollback", f"{run}@100")
    assert (done.code, len(committed(run))) == (2, 5)
    assert "--yes" in done.err


def test_rollback_sets_the_later_ones_aside_or_discards_them(call, run):
    assert call("ckpt", "rollback", f"{run}@300", "--yes").code == 0
    assert committed(run) == [100, 200, 300]
    (aside,) = (run / "checkpoints").glob("aside-step_000000000500-*")
    assert call("ckpt", "show", aside).code == 0
    done = call("ckpt", "rollback", run, "--yes")
    assert (done.code, "RUN@FRAMES: 100, 200." in done.out) == (0, True)
    before = len(list((run / "checkpoints").glob("aside-*")))
    assert call("ckpt", "rollback", f"{run}@best", "--discard", "--yes").code == 0
    assert committed(run) == [100]
    assert len(list((run / "checkpoints").glob("aside-*"))) == before


@pytest.mark.parametrize("words", [["prune", "{}", "--keep-last", 1], ["rollback", "{}@100"]])
def test_a_run_that_is_being_trained_is_refused_before_it_asks(call, run, words, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    with CheckpointManager(run / "checkpoints"):
        done = call("ckpt", *(str(word).format(run) for word in words))
    assert (done.code, done.out, len(committed(run))) == (2, "", 5)
    assert f"is in use by another run (process {os.getpid()} on " in done.err
    assert done.err.count("\n") == 1
