"""`PrometheusSink`: the exposition format, its escapes and types, and what a monitor reads."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from outcomes import wait_for

from hooktrainer import RunDir, get_logger
from hooktrainer.log import BackgroundSink, Logger, PrometheusSink
from hooktrainer.store import CheckpointManager, Mirror
from hooktrainer.testing import tiny_trainer


def logger_at(path: Path, run: str = "a") -> Logger:
    return Logger({"prometheus": PrometheusSink(path, {"run": run})})


def text_of(path: Path) -> str:
    return (path / "metrics.prom").read_text()


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What Prometheus' own client reads, by name."""
    parser = pytest.importorskip("prometheus_client.parser")
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_the_file_is_the_exposition_format(tmp_path):
    with logger_at(tmp_path) as logger:
        logger.log_scalars({"eval/return": 1.5, "loss/objective": -2e-05}, 100)
        logger.log_scalar("eval/return", 200.0, 200)
        logger.flush()
        assert text_of(tmp_path) == (
            "# HELP hooktrainer_metric Latest value of a metric.\n"
            "# TYPE hooktrainer_metric gauge\n"
            'hooktrainer_metric{run="a",name="eval/return"} 200.0\n'
            'hooktrainer_metric{run="a",name="loss/objective"} -2e-05\n'
            "# HELP hooktrainer_frames_total Environment frames collected.\n"
            "# TYPE hooktrainer_frames_total counter\n"
            'hooktrainer_frames_total{run="a"} 200.0\n'
            "# HELP hooktrainer_running Whether the run is training: 1, or 0 after its end.\n"
            "# TYPE hooktrainer_running gauge\n"
            'hooktrainer_running{run="a"} 1.0\n'
            "# HELP hooktrainer_restarts_total Number of times that the run was resumed.\n"
            "# TYPE hooktrainer_restarts_total counter\n"
            'hooktrainer_restarts_total{run="a"} 0.0\n'
        )
    assert 'hooktrainer_running{run="a"} 0.0\n' in text_of(tmp_path)


def test_labels_are_escaped_and_numbers_that_are_none_have_their_names(tmp_path):
    run = 'a "quoted" \\ and\nbroken {name}'
    with logger_at(tmp_path, run) as logger:
        logger.log_scalars({'"\\': math.nan, "up": math.inf, "down": -math.inf, "größe": 1e300}, 1)
    text = text_of(tmp_path)
    label = r'run="a \"quoted\" \\ and\nbroken {name}"'
    assert f'hooktrainer_metric{{{label},name="\\"\\\\"}} NaN\n' in text
    assert f'hooktrainer_metric{{{label},name="up"}} +Inf\n' in text
    assert f'hooktrainer_metric{{{label},name="down"}} -Inf\n' in text
    read = samples(text)["hooktrainer_metric"]
    assert [labels["run"] for labels, _ in read] == [run] * 4
    assert {labels["name"] for labels, _ in read} == {'"\\', "up", "down", "größe"}
    assert {labels["name"]: value for labels, value in read}["größe"] == 1e300


def test_a_run_tells_its_restarts_its_last_save_and_its_mirror(tmp_path):
    run = RunDir.create(tmp_path / "a", seed=0)
    manager = CheckpointManager(
        run.checkpoints, mirror=Mirror(f"file://{tmp_path}/there", pause=0.0)
    )
    trainer = tiny_trainer(
        total_frames=100,
        checkpoints=manager,
        save_trainer_interval=50,
        log_interval=20,
        logger=get_logger("prometheus", run, "tiny"),
    )
    run.update(resumed=[{}, {}], mirrored_frames=50)
    trainer.train()
    read = samples(text_of(run.path))
    own = {"run": "a", "run_id": run.run_id}
    assert read["hooktrainer_frames_total"] == [(own, 100.0)]
    assert read["hooktrainer_restarts_total"] == [(own, 2.0)]
    assert read["hooktrainer_mirrored_frames"] == [(own, 100.0)]
    saved = max(path.stat().st_mtime for path in run.checkpoints.glob("step_*"))
    assert read["hooktrainer_last_save_timestamp_seconds"] == [(own, saved)]
    assert read["hooktrainer_running"] == [(own, 0.0)]
    assert ({**own, "name": "train/optim_steps"}, 20.0) in read["hooktrainer_metric"]


def test_what_is_no_number_is_left_out_without_a_word(tmp_path, caplog):
    with logger_at(tmp_path) as logger:
        logger.log_hparams({"lr": 0.1})
        logger.log_text("note", "hello", 1)
        logger.log_image("picture", np.zeros((2, 2), np.uint8), 1)
        logger.log_histogram("weights", [1.0, 2.0], 1)
    assert caplog.text == ""
    assert not (tmp_path / "metrics.prom").exists()


def test_a_closed_logger_continues_and_nothing_but_the_file_is_left(tmp_path):
    logger = logger_at(tmp_path)
    for step in (1, 2):
        logger.log_scalar("x", float(step), step)
        logger.close()
    assert 'name="x"} 2.0' in text_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.prom"]


def test_a_damaged_run_file_does_not_matter_and_the_file_is_written_without_a_flush(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps([1]))
    sink = BackgroundSink(PrometheusSink(tmp_path, {"run": "a"}), linger=0.01)
    logger = Logger({"prometheus": sink})
    logger.log_scalar("x", 1.0, 1)
    wait_for(lambda: (tmp_path / "metrics.prom").exists())
    (tmp_path / "run.json").write_text("{")
    logger.log_scalar("x", 2.0, 2)
    logger.close()
    assert 'hooktrainer_frames_total{run="a"} 2.0' in text_of(tmp_path)
    assert sink.failure is None
    assert os.stat(tmp_path / "metrics.prom").st_mode & 0o444 == 0o444  # others may read it
