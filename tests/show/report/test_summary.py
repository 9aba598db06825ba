"""Summaries of runs, and their metrics while they are written."""

from __future__ import annotations

from hooktrainer import RunDir
from hooktrainer.show.report import MetricsTail, summarize


def test_a_run_that_runs(tmp_path):
    assert summarize(RunDir.create(tmp_path / "run")).status == "running"


def test_invalid_fields_are_ignored(tmp_path):
    path = tmp_path / "a"
    path.mkdir()
    for text in ('{"frames": "many"}', '{"seconds": null}', '{"metrics": [1]}', "[]"):
        (path / "run.json").write_text(text)
        assert summarize(RunDir(path)).status == "unknown"


def test_complete_new_rows_are_read(tmp_path):
    path = tmp_path / "metrics.csv"
    tail = MetricsTail(path)
    tail.update()  # not there yet
    assert tail.latest == {}
    path.write_text("step,name,value\n10,a,1.0\n20,a,")
    tail.update()
    assert tail.curves == {"a": [(10, 1.0)]}
    with path.open("a") as file:
        file.write('2.5\n20,"b,c",3.0\n')
    tail.update()
    assert tail.curves == {"a": [(10, 1.0), (20, 2.5)], "b,c": [(20, 3.0)]}
    assert tail.latest == {"a": 2.5, "b,c": 3.0}


def test_a_truncated_file_is_read_again(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,name,value\n10,a,1.0\n20,a,2.0\n")
    tail = MetricsTail(path)
    tail.update()
    path.write_text("step,name,value\n10,a,1.0\n")
    tail.update()
    assert tail.curves == {"a": [(10, 1.0)]}
