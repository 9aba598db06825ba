"""The CSV sink: exact values, one tidy file, exact resume."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hooktrainer.log import CSVSink, Logger, read_csv


def logger_at(path: Path) -> Logger:
    return Logger({"csv": CSVSink(path / "metrics.csv")})


def test_values_round_trip_exactly(tmp_path):
    values = [0.1, 1 / 3, -0.0, 1e-320, 1.7976931348623157e308, math.inf, -math.inf, 3]
    with logger_at(tmp_path) as logger:
        for step, value in enumerate(values):
            logger.log_scalar("x", value, step)
    assert read_csv(tmp_path) == {"x": [(i, float(v)) for i, v in enumerate(values)]}
    assert math.copysign(1, read_csv(tmp_path)["x"][2][1]) == -1


def test_the_file_is_rows_of_step_name_value(tmp_path):
    with logger_at(tmp_path) as logger:
        logger.log_scalars({"train/reward": 1.5, "loss/a": 2}, 128)
        logger.log_scalar("eval/return", 9.25, 256)
    assert (tmp_path / "metrics.csv").read_text() == (
        "step,name,value\n128,train/reward,1.5\n128,loss/a,2.0\n256,eval/return,9.25\n"
    )


@pytest.mark.parametrize("name", ["a,b", 'say "hi"', "größe", " spaced "])
def test_odd_names_survive(tmp_path, name):
    with logger_at(tmp_path) as logger:
        logger.log_scalar(name, 1.0, 0)
    assert read_csv(tmp_path / "metrics.csv") == {name: [(0, 1.0)]}


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ("10,x,1.", {}),  # torn
        ("5,x,5.0\n20,", {"x": [(5, 5.0)]}),
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_file_without_the_saved_position_keeps_its_whole_rows(
    tmp_path, caplog, rows, kept, is_known
):
    first = logger_at(tmp_path)
    first.log_scalar("x", 1.0, 10)
    state = first.state_dict()
    path = tmp_path / "metrics.csv"
    path.write_text(f"step,name,value\n{rows}")
    second = logger_at(tmp_path)
    second.load_state_dict(state if is_known else {"counts": {}, "sinks": {"csv": {}}})
    second.log_scalar("z", 1.0, 30)
    second.close()
    assert read_csv(tmp_path) == {**kept, "z": [(30, 1.0)]}
    assert ("the checkpoint knew" in caplog.text) is is_known


def test_an_earlier_runs_file_is_not_mixed_with(tmp_path, caplog):
    for value in (1.0, 2.0):
        with logger_at(tmp_path) as logger:
            logger.log_scalar("x", value, 0)
    assert read_csv(tmp_path) == {"x": [(0, 1.0)]}
    assert "metrics.csv holds the log of an earlier run" in caplog.text


def test_reading_leaves_out_a_torn_last_line(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,name,value\n1,x,1.0\n2,x,2.")
    assert read_csv(path) == {"x": [(1, 1.0)]}
    path.write_text("step,na")
    assert read_csv(path) == {}


def test_reading_something_else_says_so(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"metrics.csv is not a metrics file"):
        read_csv(path)
    path.write_text("step,name,value\n1,x\n")
    with pytest.raises(ValueError, match="line 2"):
        read_csv(path)


def test_what_is_not_a_number_goes_to_files(tmp_path):
    import numpy as np

    with logger_at(tmp_path) as logger:
        logger.log_hparams({"optim": {"lr": 0.1}})
        logger.log_text("notes/first", "hello", 5)
        logger.log_image("frame", np.zeros((3, 4, 4), np.uint8), 6)
        logger.log_video("eval/policy", np.zeros((1, 2, 3, 4, 4), np.uint8), 7)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {
        "hparams.yaml",
        "texts/notes/first_000000000005.txt",
        "images/frame_000000000006.png",
        "videos/eval/policy_000000000007.gif",
    }
    assert (tmp_path / "hparams.yaml").read_text() == "optim:\n  lr: 0.1\n"
