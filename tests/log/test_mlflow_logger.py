"""The MLflow sink on SQLite, sent in this process, read back with `MlflowClient`."""

from __future__ import annotations

import math
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from hooktrainer import get_logger
from hooktrainer.log import Logger, mlflow, mlflow_sender
from hooktrainer.log.csv import CSVSink
from hooktrainer.log.mlflow import MLflowSink
from hooktrainer.store.run_dir import RunDir

MlflowClient = pytest.importorskip("mlflow").MlflowClient
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class InProcess:
    """Sends in this process, when it is to finish."""

    def __init__(self, name: str, run: Path, uri: str) -> None:
        self.run, self.uri = run, uri

    def finish(self, seconds: float) -> bool:
        finish = threading.Event()
        finish.set()
        sender = mlflow_sender.Sender(self.run, self.uri)
        while not mlflow_sender.send_until_finished(sender, finish):
            pass
        return True

    def kill(self) -> None: ...


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(mlflow, "_Sender", InProcess)


def deliver(logger: Logger, sender: mlflow_sender.Sender | None = None) -> mlflow_sender.Sender:
    """Have everything sent that was logged so far; returns what sent it."""
    logger.flush()
    sink = logger.sinks["mlflow"].sink
    sender = sender or mlflow_sender.Sender(sink.directory, sink._uri)
    while True:
        try:
            if not sender.send_some():
                return sender
        except Exception:
            continue


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    """One SQLite store for most tests: making its tables takes a second."""
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


@pytest.fixture
def make(tmp_path, store, request):
    def make(**kwargs: Any) -> Logger:
        defaults = {"tracking_uri": store, "artifact_location": (tmp_path / "artifacts").as_uri()}
        sink = MLflowSink(tmp_path, request.node.name, "run", **{**defaults, **kwargs})
        return Logger({"csv": CSVSink(tmp_path / "metrics.csv"), "mlflow": sink})

    return make


def run_id(logger: Logger) -> str:
    sink = logger.sinks["mlflow"].sink
    return found(sink._uri, sink._note["key"])


def found(store: str, key: str) -> str:
    client = MlflowClient(store)
    places = [experiment.experiment_id for experiment in client.search_experiments()]
    (run,) = client.search_runs(places, f"tags.`hooktrainer.log` = '{key}'")
    return run.info.run_id


def history(store: str, run: str, name: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in MlflowClient(store).get_metric_history(run, name)]


def test_by_default_the_runs_of_a_folder_share_a_store_there(tmp_path, store):
    MlflowClient(store).search_experiments()  # it has its tables now
    (tmp_path / "runs").mkdir()
    shutil.copy(store.removeprefix("sqlite:///"), tmp_path / "runs" / "mlflow.db")
    places = [RunDir(tmp_path / "runs" / "cartpole" / "r1"), RunDir(tmp_path / "runs" / "r2")]
    for run in places:
        logger = get_logger("mlflow", run, "cartpole")
        logger.log_hparams({"optim": {"lr": 0.5}, "seed": 3})
        logger.log_scalars({"train/reward": 1.5, "loss": math.nan}, 128)
        logger.log_text("notes", "hello", 128)
        logger.close()
        assert logger.failures == {}

    shared = tmp_path / "runs" / "mlflow.db"
    client = MlflowClient(f"sqlite:///{shared}")
    (experiment,) = client.search_experiments(filter_string="name = 'cartpole'")
    entries = client.search_runs([experiment.experiment_id])
    assert {entry.info.run_name for entry in entries} == {"r1", "r2"}
    for entry in entries:
        assert entry.info.status == "FINISHED"
        assert entry.data.params == {"optim.lr": "0.5", "seed": "3"}
        assert entry.data.metrics["train/reward"] == 1.5
        assert math.isnan(entry.data.metrics["loss"])
    artifacts = tmp_path / "runs" / "mlflow_artifacts"
    assert len(list(artifacts.rglob("notes_000000000128.txt"))) == 2
    assert str(shared) in logger.how_to_view()["mlflow"]


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
    deliver(logger)
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
    for step in range(5, 7):  # lost with the process, but in the store, which cannot remove them
        logger.log_scalar("x", step, step)
    deliver(logger)
    for _ in range(2):  # the first one sends nothing
        resumed = make()
        resumed.load_state_dict(state)
        for step in range(5, 8):
            resumed.log_scalars({"x": step, "y": -step}, step)
    run = run_id(resumed)
    resumed.close()
    assert run == run_id(resumed) == run_id(logger)
    assert MlflowClient(store).get_run(run).data.metrics == {"x": 7, "y": -7}
    assert history(store, run, "x") == [(step, step) for step in range(8)]
    assert history(store, run, "y") == [(step, -step) for step in range(8)]
    assert MlflowClient(store).get_run(run).info.status == "FINISHED"


def test_a_start_that_is_repeated_is_the_same_run(make, store, tmp_path):
    logger = make()
    logger.log_scalar("x", 1.0, 1)
    deliver(logger)
    (tmp_path / "metrics.csv").unlink()
    again = make()
    for step in (1, 2):
        again.log_scalar("x", float(step), step)
    again.close()
    assert run_id(again) == run_id(logger)
    assert history(store, run_id(again), "x") == [(1, 1.0), (2, 2.0)]


def test_parameters_that_changed_become_tags(make, store):
    logger = make()
    logger.log_hparams({"total": 100, "lr": 0.1})
    state = logger.state_dict()
    deliver(logger)
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


def test_a_run_that_was_deleted_is_replaced_by_a_new_one_with_all_of_it(make, store, caplog):
    logger = make()
    logger.log_scalar("x", 1.0, 1)
    sender = deliver(logger)
    deleted = run_id(logger)
    MlflowClient(store).delete_run(deleted)
    logger.log_scalar("x", 2.0, 2)
    deliver(logger, sender)
    assert "cannot be continued" in caplog.text
    assert run_id(logger) != deleted
    assert history(store, run_id(logger), "x") == [(1, 1.0), (2, 2.0)]


def test_a_refused_value_does_not_affect_others(make, store, caplog, monkeypatch):
    monkeypatch.setattr("hooktrainer.log.mlflow_sender._clean", lambda name, taken: name)
    logger = make()
    logger.log_scalars({"good": 1.0, "bad [name]": 2.0, "also good": 3.0}, 1)
    logger.close()
    data = MlflowClient(store).get_run(run_id(logger)).data
    assert data.metrics == {"good": 1.0, "also good": 3.0}
    assert caplog.text.count("refuses") == 1


def test_an_earlier_run_that_is_continued_by_its_id_keeps_what_it_has(make, store):
    first = make()
    first.log_scalars({"x": 1.0, "y": 5.0}, 1)
    first.close()
    run = run_id(first)
    second = make(run_id=run)
    second.log_scalar("x", 2.0, 2)
    second.close()
    assert history(store, run, "x") == [(1, 1.0), (2, 2.0)]
    assert history(store, run, "y") == [(1, 5.0)]


def test_credentials_are_not_written(tmp_path):
    sink = MLflowSink(tmp_path, "e", "r", tracking_uri="https://me:secret@example.invalid/x")
    logger = Logger({"csv": CSVSink(tmp_path / "metrics.csv"), "mlflow": sink})
    logger.log_scalar("x", 1.0, 1)
    logger.flush()
    assert sink._uri == "https://me:secret@example.invalid/x"
    told = (tmp_path / "mlflow.json").read_text()
    assert "https://example.invalid/x" in told
    assert "secret" not in told + repr(sink)


def test_only_logged_files_are_sent(make, tmp_path):
    logger = make()
    (tmp_path / "secret.txt").write_text("secret")
    logger.log_text("t", "hello", 1)
    logger.flush()
    (tmp_path / "texts" / "a_000000000001.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "videos").symlink_to(tmp_path / "texts")
    (tmp_path / "texts" / "other.txt").write_text("of somebody else")
    logger.close()
    sent = [path.name for path in (tmp_path / "artifacts").rglob("*.txt")]
    assert sent == ["t_000000000001.txt"]
