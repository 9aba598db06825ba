"""Digests of runs, and the first difference of two."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from recorded import CURVE, write_recorded

from hooktrainer.show import read_digest


@pytest.fixture
def was(tmp_path):
    return read_digest(write_recorded(tmp_path / "was"))


@pytest.fixture
def again(tmp_path, was):
    def read(curve=CURVE, **changes):
        return read_digest(write_recorded(tmp_path / "again", curve, **changes), was.metrics)

    return read


def test_it_is_the_last_evaluation_at_its_frames(was):
    assert (was.frames, was.score) == (600, 30.25)
    assert was.curve == CURVE
    assert list(was.metrics) == ["eval/return", "loss/a"]  # and nothing that measures time


@pytest.mark.parametrize(
    ("curve", "changes", "difference"),
    [
        (CURVE, {"seconds": 2.0}, None),  # it took longer
        (CURVE, {"loss_300": 7.0}, "loss/a differs"),
        (
            (*CURVE[:1], (400, math.nextafter(20.5, 21)), CURVE[2]),
            {},
            "eval/return differs; eval/return at frame 400 is 20.500000000000004, was 20.5",
        ),
        (
            CURVE[:2],
            {},
            "eval/return, loss/a differ; eval/return at frame 600 is not there, was 30.25",
        ),
    ],
)
def test_the_first_difference_is_named(was, again, curve, changes, difference):
    assert was.first_difference(again(curve, **changes)) == difference


def test_parameters_are_compared(was, again):
    assert was.first_difference(again(weight=math.nextafter(0.5, 1))) is None  # float32
    assert was.first_difference(replace(was, parameters="0")) == "the parameters differ"


def test_a_row_may_be_scored_by_another_metric(tmp_path):
    digest = read_digest(write_recorded(tmp_path / "run"), score="loss/a")
    assert (digest.frames, digest.score) == (600, 1 / 600)
    other = replace(digest, curve=((600, 2.0),), metrics={"loss/a": "0"})
    found = replace(digest, metrics={"loss/a": "1"}).first_difference(other, "loss/a")
    assert found == "loss/a differs; loss/a at frame 100 is not there, was 0.01"


def test_a_new_metric_is_not_compared(tmp_path, was):
    run = write_recorded(tmp_path / "newer")
    with (run / "metrics.csv").open("a") as file:
        file.write("600,train/new,1.0\n")
    assert was.first_difference(read_digest(run, was.metrics)) is None
