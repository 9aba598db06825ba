"""The MLflow sink on SQLite, read back with `MlflowClient`."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hooktrainer.loggers import Logger, get_logger
from hooktrainer.loggers.mlflow import MLflowSink
from hooktrainer.run_dir import RunDir

MlflowClient = pytest.importorskip("mlflow").MlflowClient
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    """One SQLite store for most tests: making its tables takes a second."""
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


@pytest.fixture
def make(tmp_path, store, request):
    def make(**kwargs: Any) -> Logger:
        defaults = {"tracking_uri": store, "artifact_location": (tmp_path / "artifacts").as_uri()}
        sink = MLflowSink(tmp_path, request.node.name, "run", **{**defaults, **kwargs})
        return Logger({"mlflow": sink})

    return make


def run_id(logger: Logger) -> str:
    return logger.state_dict()["sinks"]["mlflow"]["run_id"]


def history(store: str, run: str, name: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in MlflowClient(store).get_metric_history(run, name)]


def test_by_default_everything_is_in_the_run_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = RunDir(tmp_path / "r1")
    logger = get_logger("mlflow", run, "cartpole")
    logger.log_hparams({"optim": {"lr": 0.5}, "seed": 3})
    logger.log_scalars({"train/reward": 1.5, "loss": math.nan}, 128)
    logger.log_text("notes", "hello", 128)
    logger.close()
    assert logger.failures == {}

    client = MlflowClient(f"sqlite:///{run.path / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'cartpole'")
    (entry,) = client.search_runs([experiment.experiment_id])
    assert entry.info.run_name == "r1"
    assert entry.info.status == "FINISHED"
    assert entry.data.params == {"optim.lr": "0.5", "seed": "3"}
    assert entry.data.metrics["train/reward"] == 1.5
    assert math.isnan(entry.data.metrics["loss"])
    assert len(list((run.path / "mlflow_artifacts").rglob("notes_000000000128.txt"))) == 1
    assert str(run.path / "mlflow.db") in logger.how_to_view()["mlflow"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("finished", "FINISHED"),
        ("stopped", "FINISHED"),
        ("failed", "FAILED"),
        ("interrupted", "KILLED"),
    ],
)
def test_the_run_ends_with_its_status(make, store, status, expected):
    logger = make()
    logger.log_scalar("x", 1.0, 0)
    run = run_id(logger)
    assert MlflowClient(store).get_run(run).info.status == "RUNNING"
    logger.close(status)
    logger.close()
    assert MlflowClient(store).get_run(run).info.status == expected


def test_resume_is_the_same_run_with_every_step_once(make, store):
    logger = make()
    for step in range(5):
        logger.log_scalars({"x": step, "y": -step}, step)
    state = logger.state_dict()
    for step in range(5, 9):  # lost with the process, but in the store
        logger.log_scalars({"x": 99, "late": 1}, step)
    logger.flush()

    resumed = make()
    resumed.load_state_dict(state)
    run = run_id(resumed)
    assert MlflowClient(store).get_run(run).data.metrics == {"x": 4, "y": -4}
    for step in range(5, 8):
        resumed.log_scalars({"x": step, "y": -step}, step)
    resumed.close()
    assert run == run_id(logger)
    assert history(store, run, "x") == [(step, step) for step in range(8)]
    assert history(store, run, "y") == [(step, -step) for step in range(8)]
    assert history(store, run, "late") == []
    assert MlflowClient(store).get_run(run).info.status == "FINISHED"


def test_resume_where_metrics_cannot_be_removed_writes_none_twice(make, store, monkeypatch, caplog):
    import sqlite3

    def refuse(*args: Any) -> None:
        raise sqlite3.OperationalError("no such table: metrics")

    logger = make()
    logger.log_scalar("x", 1, 1)
    state = logger.state_dict()
    logger.log_scalar("x", 2, 2)
    logger.flush()
    monkeypatch.setattr("hooktrainer.loggers.mlflow._delete_after", refuse)
    resumed = make()
    resumed.load_state_dict(state)
    for step in (2, 3):
        resumed.log_scalars({"x": step, "y": step}, step)
    resumed.close()
    assert history(store, run_id(resumed), "x") == [(1, 1), (2, 2), (3, 3)]
    assert history(store, run_id(resumed), "y") == [(2, 2), (3, 3)]
    assert "reaches step 2, the checkpoint step 1" in caplog.text


def test_parameters_that_changed_become_tags(make, store):
    logger = make()
    logger.log_hparams({"total": 100, "lr": 0.1})
    state = logger.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    resumed.log_hparams({"total": 200, "lr": 0.1, "new": {"a": 1}})
    resumed.close()
    data = MlflowClient(store).get_run(run_id(resumed)).data
    assert data.params == {"total": "100", "lr": "0.1", "new.a": "1"}
    assert data.tags["total"] == "200"
    assert resumed.failures == {}


def test_names_are_made_acceptable_and_stay_apart(make, store):
    logger = make()
    names = ["loss (actor)", "loss [actor]", "a//b/../c", "größe", "x" * 300, "ok/name: 1.5"]
    logger.log_scalars(dict.fromkeys(names, 1.0), 0)
    logger.log_scalars(dict.fromkeys(names, 2.0), 1)
    state = logger.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    resumed.log_scalars(dict.fromkeys(reversed(names), 3.0), 2)
    resumed.close()
    metrics = MlflowClient(store).get_run(run_id(resumed)).data.metrics
    assert resumed.failures == {}
    assert len(metrics) == len(names)
    assert {"loss _actor_", "ok/name: 1.5", "a/b/_/c", "gr__e"} <= set(metrics) | {"gr__e"}
    for name in metrics:
        assert [value for _, value in history(store, run_id(resumed), name)] == [1.0, 2.0, 3.0]


def test_more_than_one_request_holds(make, store):
    logger = make()
    logger.log_hparams({f"p{number}": number for number in range(250)})
    logger.log_scalars({f"m{number}": number for number in range(1500)}, 0)
    logger.close()
    data = MlflowClient(store).get_run(run_id(logger)).data
    assert len(data.params) == 250
    assert len(data.metrics) == 1500


def test_pictures_are_artifacts(make, tmp_path):
    logger = make()
    logger.log_image("frame", np.zeros((4, 4), np.uint8), 1)
    logger.log_video("eval/policy", np.zeros((3, 1, 4, 4), np.uint8), 2)
    logger.close()
    assert logger.failures == {}
    found = {path.name for path in (tmp_path / "artifacts").rglob("*.*")}
    assert found == {"frame_000000000001.png", "policy_000000000002.gif"}


def test_a_run_that_is_gone_is_replaced_by_a_new_one(make, store, caplog):
    logger = make()
    state = logger.state_dict()
    state["sinks"]["mlflow"]["run_id"] = "0" * 32
    logger.load_state_dict(state)
    logger.log_scalar("x", 1.0, 1)
    logger.close()
    assert "cannot be continued" in caplog.text
    assert history(store, run_id(logger), "x") == [(1, 1.0)]


def test_a_server_that_is_not_there_is_not_fatal(make, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    logger = make(tracking_uri=f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}")
    logger.log_scalar("x", 1.0, 1)
    logger.flush()
    logger.close()
    assert set(logger.failures) == {"mlflow"}
    assert "'mlflow' failed" in caplog.text


def test_the_environment_chooses_the_store(tmp_path, store, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    logger = get_logger("mlflow", Path(tmp_path), "exp", mlflow_kwargs={"tags": {"who": "me"}})
    logger.log_scalar("x", 1.0, 0)
    run = run_id(logger)
    logger.close()
    assert MlflowClient(store).get_run(run).data.tags["who"] == "me"
    assert not (tmp_path / "exp" / "mlflow.db").exists()


def test_a_pickled_logger_continues_the_run(make, store):
    logger = make()
    logger.log_scalar("x", 1.0, 1)
    run = run_id(logger)
    copy = pickle.loads(pickle.dumps(logger))
    copy.log_scalar("x", 2.0, 2)
    copy.close()
    assert history(store, run, "x") == [(1, 1.0), (2, 2.0)]
