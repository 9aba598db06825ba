"""Following a metrics file while it is written."""

from __future__ import annotations

from itertools import pairwise

from hooktrainer.show.report import MetricsTail


def test_new_rows_are_added_and_half_ones_wait(tmp_path):
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


def test_a_file_that_a_resumed_run_has_cut_is_read_anew(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,name,value\n10,a,1.0\n20,a,2.0\n")
    tail = MetricsTail(path)
    tail.update()
    path.write_text("step,name,value\n10,a,1.0\n")
    tail.update()
    assert tail.curves == {"a": [(10, 1.0)]}


def test_a_long_curve_is_thinned_evenly(tmp_path):
    path = tmp_path / "metrics.csv"
    rows = [f"{step},a,{float(step)}\n" for step in range(5000)]
    path.write_text("".join(["step,name,value\n", *rows]))
    tail = MetricsTail(path)
    tail.update()
    steps = [step for step, _ in tail.curves["a"]]
    assert len(steps) <= 1024
    assert {later - step for step, later in pairwise(steps)} == {8}
    assert tail.latest["a"] == 4999.0
