"""Summaries of runs, and their metrics while they are written."""

from __future__ import annotations

from hooktrainer import RunDir
from hooktrainer.show import summarize


def test_a_run_that_runs(tmp_path):
    assert summarize(RunDir.create(tmp_path / "run")).status == "running"


def test_invalid_fields_are_ignored(tmp_path):
    path = tmp_path / "a"
    path.mkdir()
    for text in ('{"frames": "many"}', '{"seconds": null}', '{"metrics": [1]}', "[]"):
        (path / "run.json").write_text(text)
        assert summarize(RunDir(path)).status == "unknown"
