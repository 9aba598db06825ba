"""Wrong usage: every command exits with 2 and one line that names the mistake."""

from __future__ import annotations

import pytest
from cli_runs import make_run_in
from finished_runs import write_run

from hooktrainer import RunDir

BOX = ["--total-frames", "9"]
FILM = ["-o", "film.webp"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with a run of checkpoints, two of a toy, an empty and a blank one."""
    folder = tmp_path_factory.mktemp("mistakes")
    make_run_in(folder)
    for lr in (0.1, 0.2):
        write_run(folder / f"toys/lr{lr}", seed=0, options={"lr": lr, "env": "Toy-v0"})
    (folder / "empty").mkdir()
    (folder / "blank").mkdir()
    (folder / "blank/run.json").write_text("{}")
    (folder / "bad.yaml").write_text("Toy-v0: 3\n")
    (folder / "quits.py").write_text("print(1)")
    RunDir.create(folder / "runs/first")
    return folder


@pytest.fixture
def place(folder, monkeypatch):
    """That directory as the current one; what is mistaken changes nothing in it."""
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    yield
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *((words, "there is no run nope.") for words in (
            ["ckpt", "list", "nope"], ["ckpt", "verify", "nope"], ["watch", "nope"],
            ["policies", "list", "nope"], ["policies", "evaluate", "nope"], ["play", "nope"],
            ["gallery", "nope"], ["render", "nope", *FILM], ["tensorboard", "nope"],
        )),
        *((words, "holds no run") for words in (
            ["ckpt", "list", "empty"], ["ckpt", "verify", "empty"], ["watch", "empty"],
            ["describe", "empty"], ["play", "empty"],
            ["render", "empty", *FILM],
        )),
        (["resume", "toys"], "no checkpoints. Name one of its runs: toys/"),
        (["runs", "nope"], "there is no directory nope"),
        (["report", "nope"], "there is no directory nope"),
        (["ckpt", "show", "run@150"], "has those at frames 100, 200, 300."),
        (["ckpt", "prune", "run"], "one or more retention rules"),
        (["ckpt", "prune", "run", "--keep-best", "eval/return"], "write N:METRIC"),
        (["ckpt", "prune", "run", "--keep-best", "1:eval/retrun"], "Did you mean eval/return"),
        (["ckpt", "prune", "run", "--keep-last", 0], "n=0"),
        (["ckpt", "diff", "run", "run", "--limit", -1], "--limit=-1: pass an integer of 0 or more"),
        (["policies", "evaluate", "run", "--seed", -1], "--seed=-1: pass an integer of 0 or more"),
        (["policies", "prune", "run"], "one or more retention rules"),
        (["play", "run", "--episodes", 0], "--episodes"),
        (["gallery", "run", "--size", 2], "size=2"),
        (["gallery", "run", "--seconds", 0], "seconds=0"),
        (["gallery", "run", "--episodes", 0], "episodes=0"),
        (["gallery", "run"], "--snapshots 6"),
        (["gallery", "run", "-o", "."], "is a directory: name a file, such as gallery.html"),
        (["render", "run", *FILM, "--quality", 101], "quality=101: give a number from 0 to 100"),
        (["render", "run", "-o", "film.avi"], "the name of a film ends in .webp, .gif or .mp4"),
        (["render", "run", *FILM], "--snapshots"),
        (["runs", "toys", "--sort", "colour"], "--sort colour: sort by started"),
        (["runs", "toys", "--sort", "bets"], "Did you mean best?"),
        (["runs", "toys", "--where", "lr"], "write OPTION=VALUE"),
        (["runs", "toys", "--where", "lrr=1"], "no run has an option lrr. Did you mean lr?"),
        *((["runs", "toys", "--metric", "eval/retrun", *more], "Did you mean eval/return?")
          for more in ([], ["--json"], ["--curves"])),
        (["report", "toys", "--metric", "eval/retrun"], "Did you mean eval/return?"),
        (["report", "toys", "--against", "best"], "no group 'best'; there are lr 0.1, lr 0.2"),
        (["report", "toys", "--reference", "bad.yaml"], "Toy-v0: 3 is not {low: ..., high: ...}"),
        (["report", "toys", "-o", "."], "is a directory"),
        (["describe", "blank"], "describe the script that began it"),
        (["describe", "quits.py"], "ended without a call of Trainer.train()"),
        (["describe", "nope.py"], "there is no script"),
        (["describe", "runs/frist"], "there is no run runs/frist. Did you mean runs/first?\n"),
        (["describe", "run/checkpoints/q"], "there is no run run/checkpoints/q.\n"),
        (["tensorboard", "blank"], "nothing in blank"),
        (["watch", ".", "--interval", 0], "--interval=0.0: pass a positive number of seconds"),
        (["sweep", "ppo", "--env", "CartPole-v1", "--confirm", -1], "--confirm=-1: pass"),
        (["sweep", "own.py", "--trials", 2], "own.py: this command sweeps the algorithms of"),
        (["sweep", "own.py:Own", "--trials", 2], "own.py:Own: this command sweeps the algorithms"),
        (["verify-resume", "nope.py"], "there is no script nope.py."),
        (["verify-resume", "sacc"], "Did you mean sac"),
        (["verify-resume", "sac", "--kills", -1], "--kills=-1: pass an integer of 0 or more"),
        (["verify-resume", "sac", "--", "--resume", "latest"], "leave out --resume"),
        (["train", "nope/walk.py"], "there is no script nope/walk.py."),
        (["train", "a/own.py:Own"], "a/own.py:Own: train a/own.py, with Own.main() at its end."),
        (["train", ""], "there is nothing to train called ''."),
        (["train", "."], "there is nothing to train called '.'."),
        (["train", "ppo2"], "Did you mean ppo"),
        (["train", "td3", "--env", "CartPole-v1", *BOX], "td3 is for continuous actions"),
        (["train", "ppo", "--env", "Kartpole-v1", *BOX], "Kartpole"),
        (["train", "ppo", "--env", "CartPole-v1", *BOX, "--env-kwargs", "x"], "not JSON"),
        (["train", "ppo", "--env", "CartPole-v1", *BOX, "--no-tuned", "--resume", "latest"],
         "there is no run of ppo"),
        (["train", "ppo", *BOX], "--env"),
        (["galery"], "Did you mean gallery?"),
        (["polices", "list"], "Did you mean policies?"),
        (["ckpt", "lst"], "Did you mean list?"),
        (["completion", "tcl"], "tcl"),
    ],
    ids=lambda value: " ".join(map(str, value[:3])) if isinstance(value, list) else "",
)  # fmt: skip
@pytest.mark.usefixtures("place")
def test_a_mistake_is_named_in_one_line(call, words, message):
    done = call(*words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err
    if words[0] not in ("train", "completion", "describe", "report"):  # which may print more
        assert done.err.count("\n") == 1
