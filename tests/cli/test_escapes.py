"""Control characters in the files of a run are escaped by every command that prints them."""

from __future__ import annotations

import json

import pytest

from hooktrainer import RunDir

EVIL = "\x1b]0;title\x07\x1b[2J\x9b1m\u202eevil"


@pytest.fixture
def run(tmp_path):
    run = RunDir.create(tmp_path / "runs/a", experiment=EVIL)
    run.write_config({EVIL: EVIL, "lr": 1})
    run.metrics.write_text(f"step,name,value\n100,eval/return,1\n100,{EVIL},2\n")
    hook = dict.fromkeys(("point", "hook", "when", "module"), EVIL) | {"priority": 0, "saves": []}
    run.hooks_file.write_text(json.dumps([hook | {"point": "post_steps"}]))
    state = run.read() | {"status": "failed", "reason": EVIL, "seed": EVIL}
    run.run_file.write_text(json.dumps(state))
    return run.path


@pytest.fixture
def evil_place(tmp_path):
    return RunDir.create(tmp_path / f"a{EVIL}\nb", experiment="a").path


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "{runs}", "--curves", "--metric", EVIL),
        ("runs", "{runs}", "--json"),
        ("watch", "{run}", "--once"),
        ("describe", "{run}"),
        ("describe", "{run}", "--json"),
        ("policies", "list", "{run}"),
        ("play", "{run}@" + "5"),
        ("play", "{run}" + EVIL),
        ("runs", "{evil}"),
        ("watch", "{evil}", "--once"),
        ("ckpt", "list", "{evil}"),
        ("policies", "list", "{evil}"),
        ("ckpt", "prune", "{evil}", "--keep-last", "1"),
        ("sync", "{evil}"),
    ],
    ids=lambda words: " ".join(words[:2]).encode("unicode_escape").decode(),
)
def test_control_characters_are_escaped(words, run, evil_place, call):
    done = call(*(word.format(run=run, runs=run.parent, evil=evil_place) for word in words))
    for text in (done.out, done.err):
        assert [c for c in text if not c.isprintable() and c != "\n"] == []
