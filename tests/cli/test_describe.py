"""`hooktrainer describe`: the hooks of runs and scripts."""

from __future__ import annotations

import json
import math
import sys

from hooktrainer import HOOK_POINTS, RunDir, RunRecorder
from hooktrainer.cli import describe
from hooktrainer.testing import tiny_trainer

SCRIPT = """
import sys
from hooktrainer import Every, RunDir, RunRecorder
from hooktrainer.testing import tiny_trainer

print("hello", *sys.argv[1:])
trainer = tiny_trainer()
run = RunDir.create("runs/never")
RunRecorder(run).register(trainer)
trainer.register_op("post_steps", lambda: None, every=Every(frames=50))
trainer.train()
print("not reached")
"""


def test_a_run_records_its_hooks(call, tmp_path):
    run = RunDir.create(tmp_path / "run")
    trainer = tiny_trainer()
    RunRecorder(run, report=False).register(trainer)
    table = trainer.registry.table()
    trainer.train()
    assert json.loads(call("describe", run.path, "--json").out) == table
    out = call("describe", run.path).out
    for point in HOOK_POINTS:
        assert f"{point} ({point.kind})" in out
    for text in ("nan_guard", "Every(seconds=1.0)", "optimizer: state, param_groups"):
        assert text in out


def test_hooks_that_run_last_whatever_others_do_are_described(call, tmp_path):
    """Such as the profiler, a compiled step, and `stop_when`."""
    run, trainer = RunDir.create(tmp_path / "run"), tiny_trainer()
    RunRecorder(run, report=False).register(trainer)
    trainer.register_op("post_steps", lambda: None, priority=-math.inf)
    trainer.train()
    rows = {row["hook"]: row for row in json.loads(call("describe", run.path, "--json").out)}
    assert rows["<lambda>"]["priority"] == "-inf"
    assert "-inf" in call("describe", run.path).out


def test_a_script_is_described_without_training(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = call("describe", script, "--json", "--", "--lr", "1")
    assert done.code == 0
    rows = {row["hook"]: row for row in json.loads(done.out)}
    assert rows["<lambda>"]["when"] == "Every(frames=50)"
    assert rows["<lambda>"]["point"] == "post_steps"
    assert rows["optimizer"]["saves"] == ["state", "param_groups", "given"]
    assert "hello --lr 1" in done.err
    assert "not reached" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]  # nothing is left


def test_modules_in_the_current_directory_are_not_imported_for_an_algorithm(
    call, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr(describe, "train_algorithm", lambda *_: seen.append(sys.path[:]))
    assert call("describe", "ppo").code == 2
    assert seen == [sys.path]
