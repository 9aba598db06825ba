"""What holds for every sink that writes files: CSV and TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrainer.log import CSVSink, Logger, TensorBoardSink, read_csv, read_scalars


@pytest.fixture(params=["csv", "tensorboard"])
def kind(request) -> str:
    return request.param


def logger_at(kind: str, path: Path) -> Logger:
    sink = CSVSink(path / "metrics.csv") if kind == "csv" else TensorBoardSink(path)
    return Logger({kind: sink})


def read(kind: str, path: Path) -> dict[str, list[tuple[int, float]]]:
    return read_csv(path) if kind == "csv" else read_scalars(path)


@pytest.mark.parametrize("before", [[], [(1, 1.0)]])
def test_resume_takes_back_what_was_logged_later_even_at_the_same_step(kind, tmp_path, before):
    first = logger_at(kind, tmp_path)
    for step, value in before:
        first.log_scalar("x", value, step)
    state = first.state_dict()
    for step in (1, 2):
        first.log_scalars({"x": 99.0, "y": 99.0}, step)
        first.flush()
        first = logger_at(kind, tmp_path)
        first.load_state_dict(state)
    first.log_scalar("x", 2.0, 2)
    first.close()
    assert read(kind, tmp_path) == {"x": [*before, (2, 2.0)]}


def test_a_sink_that_was_late_at_a_checkpoint_is_taken_back_to_its_step(kind, tmp_path):
    logger = logger_at(kind, tmp_path)
    for step in (1, 2, 3):
        logger.log_scalar("x", float(step), step)
    logger.close()
    state = {"counts": {}, "sinks": {kind: {"late": 2}}}
    for _ in range(2):
        logger = logger_at(kind, tmp_path)
        logger.load_state_dict(state)
        state = logger.state_dict()
    logger.log_scalar("x", 4.0, 4)
    logger.close()
    assert read(kind, tmp_path) == {"x": [(1, 1.0), (2, 2.0), (4, 4.0)]}


def test_a_position_is_kept_until_the_first_write(kind, tmp_path):
    logger = logger_at(kind, tmp_path)
    logger.log_scalar("x", 1.0, 1)
    state = logger.state_dict()
    for _ in range(2):
        logger = logger_at(kind, tmp_path)
        logger.load_state_dict(state)
        state = logger.state_dict()
    logger_at(kind, tmp_path).load_state_dict(state)
    assert read(kind, tmp_path) == {"x": [(1, 1.0)]}


def test_a_closed_logger_continues(kind, tmp_path):
    logger = logger_at(kind, tmp_path)
    for step in (1, 2):
        logger.log_scalar("x", float(step), step)
        logger.close()
    assert read(kind, tmp_path) == {"x": [(1, 1.0), (2, 2.0)]}
