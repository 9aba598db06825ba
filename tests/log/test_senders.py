"""The sinks that send to servers: MLflow, by a server of this test, and W&B, by a stand-in."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections import defaultdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_mlflow import FakeMLflow, SilentServer, closed_port

from hooktrainer import RunDir, get_logger
from hooktrainer.cli import main
from hooktrainer.log import CSVSink, Logger, MLflowSink, WandbSink, read_csv

# Imported by the tests: it takes seconds, which every process that collects this file would pay.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.skipif(not (find_spec("mlflow") and find_spec("wandb")), reason="needs both"),
]

History = dict[str, list[tuple[int, float]]]


class FakeWandb:
    """Stands in for `wandb.init`; keeps the rows of each run by its id."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.config: dict[str, Any] = {}
        self.exit_codes: list[int] = []
        self.is_away = False

    def init(self, *, id: str, **_: Any) -> Any:
        if self.is_away:
            raise ConnectionRefusedError(111, "Connection refused")
        return type(
            "Run",
            (),
            {
                "url": "https://wandb.example/run",
                "define_metric": lambda *_, **__: None,
                "log": lambda _, row: self._log(id, row),
                "finish": lambda _, exit_code: self.exit_codes.append(exit_code),
                "config": type(
                    "Config", (), {"update": lambda _, new, **__: self.config.update(new)}
                )(),
            },
        )()

    def _log(self, run: str, row: dict[str, Any]) -> None:
        if self.is_away:
            raise ConnectionResetError
        self.rows[run].append(row)


class Server:
    """One of the two servers, with what both have in common."""

    def __init__(self, kind: str, fake: Any) -> None:
        self.kind, self.fake = kind, fake

    def sink(self, path: Path) -> Any:
        if self.kind == "wandb":
            return WandbSink(path, "project", "run")
        return MLflowSink(path, "e", "run", tracking_uri=self.fake.uri)

    def logger(self, path: Path) -> Logger:
        sink = self.sink(path)
        sink.is_awaited = True  # so that a flush sends what there is
        return Logger({"csv": CSVSink(path / "metrics.csv"), self.kind: sink})

    def history(self) -> History:
        """The values of the only run."""
        found: History = defaultdict(list)
        if self.kind == "wandb":
            (rows,) = self.fake.rows.values()
            for row in rows:
                for name in row.keys() - {"step"}:
                    found[name].append((row["step"], row[name]))
        else:
            (run,) = self.fake.runs.values()
            for name, step, value in run["metrics"]:
                found[name].append((step, value))
        return dict(found)

    def ending(self) -> Any:
        if self.kind == "wandb":
            return self.fake.exit_codes[-1]
        return next(iter(self.fake.runs.values()))["status"]

    def is_away(self, away: bool) -> None:
        if self.kind == "wandb":
            self.fake.is_away = away
        else:
            self.fake.fail = int(away)


@pytest.fixture(params=["mlflow", "wandb"])
def server(request, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    if request.param == "wandb":
        fake = FakeWandb()
        monkeypatch.setattr("wandb.init", fake.init)
        yield Server("wandb", fake)
    else:
        with FakeMLflow() as fake:
            yield Server("mlflow", fake)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("stopped", {"mlflow": "FINISHED", "wandb": 0}),
        ("failed", {"mlflow": "FAILED", "wandb": 1}),
        ("interrupted", {"mlflow": "KILLED", "wandb": 255}),
    ],
)
def test_values_the_configuration_and_the_status_arrive(server, tmp_path, status, expected):
    logger = server.logger(tmp_path)
    logger.log_hparams({"optim": {"lr": 0.5}})
    logger.log_scalars({"train/reward": 1.5, "loss": 2}, 128)
    logger.log_scalar("loss", 1.0, 256)
    logger.close(status)
    assert logger.failures == {}
    assert server.history() == {"train/reward": [(128, 1.5)], "loss": [(128, 2.0), (256, 1.0)]}
    assert server.ending() == expected[server.kind]
    if server.kind == "wandb":
        assert server.fake.config == {"optim": {"lr": 0.5}}
    else:
        assert next(iter(server.fake.runs.values()))["params"] == {"optim.lr": "0.5"}


def test_resume_is_the_same_run_with_every_step_once(server, tmp_path):
    logger = server.logger(tmp_path)
    for step in range(5):
        logger.log_scalars({"x": step, "y": -step}, step)
    state = logger.state_dict()
    for step in range(5, 7):  # lost with the process, but at the server, which cannot remove them
        logger.log_scalar("x", step, step)
    logger.close("interrupted")
    resumed = server.logger(tmp_path)
    resumed.load_state_dict(state)
    for step in range(5, 8):
        resumed.log_scalars({"x": step, "y": -step}, step)
    resumed.close()
    history = {name: sorted(rows) for name, rows in server.history().items()}
    assert history["x"] == [(step, step) for step in range(8)]
    assert history["y"] == [(step, -step) for step in range(8)]


def test_a_start_that_is_repeated_is_the_same_run(server, tmp_path):
    logger = server.logger(tmp_path)
    logger.log_scalar("x", 1.0, 1)
    logger.close()
    (tmp_path / "metrics.csv").unlink()
    again = server.logger(tmp_path)
    for step in (1, 2):
        again.log_scalar("x", float(step), step)
    again.close()
    assert server.history() == {"x": [(1, 1.0), (2, 2.0)]}


def test_a_server_that_recovers_receives_everything(server, tmp_path, caplog):
    logger = server.logger(tmp_path)
    for number, away in enumerate((False, True, True, False)):
        server.is_away(away)
        for step in range(10):
            logger.log_scalar(f"x{number}", step / 3, step)
        logger.sinks[server.kind].sink._next = 0.0
        logger.flush()
    logger.close()
    assert server.history() == read_csv(tmp_path)
    assert caplog.text.count("cannot be written to") == 1
    assert caplog.text.count("can be written to again") == 1
    assert logger.failures == {}


def test_what_was_not_sent_is_synced_later(server, tmp_path, caplog, capsys):
    server.is_away(True)
    logger = server.logger(tmp_path)
    logger.log_scalars({"x": 1.0, "y": 2.0}, 1)
    logger.close("stopped")
    assert f"not everything has been sent. To send the rest: hooktrainer sync {tmp_path}" in (
        caplog.text
    )
    assert main(["sync", str(tmp_path)]) == 1
    assert "cannot be written to" in capsys.readouterr().err
    server.is_away(False)
    for number in (2, 0):
        assert main(["sync", str(tmp_path)]) == 0
        assert f"{number} values sent" in capsys.readouterr().out
    assert server.history() == read_csv(tmp_path)
    assert server.ending() in ("FINISHED", 0)


def test_a_run_that_trains_is_not_synced(server, tmp_path, capsys):
    logger = server.logger(tmp_path)
    logger.log_scalar("x", 1.0, 1)
    logger.flush()
    assert main(["sync", str(tmp_path)]) == 1
    assert "sends its logs itself" in capsys.readouterr().err
    logger.close()


def test_an_unreachable_server_is_reported_and_synced_later(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{closed_port()}")
    logger = get_logger("mlflow", tmp_path, "run")
    logger.log_scalar("x", 1.0, 1)
    assert logger.state_dict()["sinks"]["csv"]["bytes"]
    logger.close()
    assert logger.failures == {}
    assert "cannot be written to (Connection refused)" in caplog.text
    with FakeMLflow() as fake:
        assert main(["sync", str(tmp_path), "--to", fake.uri]) == 0
        assert Server("mlflow", fake).history() == {"x": [(1, 1.0)]}


def test_a_silent_server_delays_nothing(tmp_path, monkeypatch):
    with SilentServer() as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", silent.uri)
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
        logger = get_logger("mlflow", tmp_path, "run")
        begun = time.monotonic()
        for step in range(10):
            logger.log_scalar("x", step, step)
            logger.flush()
        assert logger.state_dict()["sinks"]["csv"]["bytes"]
        logger.set_deadline(time.monotonic() + 1)
        logger.close("interrupted")
        assert time.monotonic() - begun < 10
    assert "hooktrainer sync" in str(logger.failures["mlflow"])
    assert len(read_csv(tmp_path / "run")["x"]) == 10


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("when", [7, 11, 13])
def test_a_server_that_fails_at_any_request_has_every_value_once(tmp_path, monkeypatch, when, lost):
    monkeypatch.setattr("hooktrainer.log.sender._CHUNK", 40)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with FakeMLflow() as fake:
        csv = CSVSink(tmp_path / "metrics.csv")
        with Logger({"csv": csv}) as logger:
            for step in range(20):
                logger.log_scalars({"x": step / 3, "y": -step}, step)
        setattr(fake, "lose" if lost else "fail", when)
        sender = MLflowSink(tmp_path, "e", "run", tracking_uri=fake.uri)
        for _ in range(100):
            try:
                sender.send()
            except Exception:
                sender.disconnect()
        assert len(fake.runs) == 1
        assert Server("mlflow", fake).history() == read_csv(tmp_path)


PROGRAM = """
import sys
from pathlib import Path
from hooktrainer.log import Logger
from hooktrainer.log.csv import CSVSink
from hooktrainer.log.mlflow import MLflowSink

path, uri = Path(sys.argv[1]), sys.argv[2]
logger = Logger({
    "csv": CSVSink(path / "metrics.csv"), "mlflow": MLflowSink(path, "e", "run", tracking_uri=uri)
})
for step in range(10**9):
    logger.log_scalars({"x": step / 3, "y": -step}, step)
    if step % 100 == 99:
        logger.state_dict()
"""


@pytest.mark.slow
@pytest.mark.parametrize("requests", [4, 6, 9])
def test_a_run_whose_process_is_killed_has_every_value_once(tmp_path, requests):
    with FakeMLflow() as fake:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), fake.uri]
        with subprocess.Popen(command) as program:
            until = time.monotonic() + 60
            while fake.requests < requests and time.monotonic() < until:
                time.sleep(0.001)
            program.kill()
        assert fake.requests >= requests
        assert main(["sync", str(tmp_path)]) == 0
        assert len(fake.runs) == 1
        assert Server("mlflow", fake).history() == read_csv(tmp_path)
        assert Server("mlflow", fake).ending() == "KILLED"


@pytest.mark.parametrize("options", [{"no": 1}, [], None])
def test_a_note_that_no_run_wrote_is_refused_in_a_line(tmp_path, capsys, options):
    (tmp_path / "mlflow.json").write_text(json.dumps({"run": "x", "options": options}))
    assert main(["sync", str(tmp_path)]) == 2
    assert "mlflow.json" in capsys.readouterr().err


def test_parameters_that_changed_become_tags(tmp_path):
    with FakeMLflow() as fake:
        server = Server("mlflow", fake)
        for total in (100, 200):
            logger = server.logger(tmp_path)
            logger.load_state_dict({"counts": {}, "sinks": {"csv": {}}})
            logger.log_hparams({"total": total, "lr": 0.1})
            logger.close()
        (run,) = fake.runs.values()
    assert run["params"] == {"total": "100", "lr": "0.1"}
    assert run["tags"]["total"] == "200"


def test_names_are_made_acceptable_and_stay_apart(tmp_path):
    names = ["loss (actor)", "loss [actor]", "a//b/../c", "größe", "x" * 300, "ok/name: 1.5"]
    with FakeMLflow() as fake:
        logger = Server("mlflow", fake).logger(tmp_path)
        for step in range(2):
            logger.log_scalars(dict.fromkeys(names, 1.0), step)
        logger.close()
        history = Server("mlflow", fake).history()
    assert {"loss _actor_", "ok/name: 1.5", "a/b/_/c", "gr__e"} <= set(history) | {"gr__e"}
    assert len(history) == len(names)
    assert all(rows == [(0, 1.0), (1, 1.0)] for rows in history.values())


def test_credentials_are_not_written(tmp_path):
    sink = MLflowSink(tmp_path, "e", "r", tracking_uri="https://me:secret@example.invalid/x")
    sink.write("hparams", {})
    told = (tmp_path / "mlflow.json").read_text()
    assert "https://example.invalid/x" in told
    assert "secret" not in told + repr(sink)


def test_a_store_is_created_whole_or_not_at_all(tmp_path, monkeypatch):
    class Client:
        """Makes the tables of a store, as MLflow's does; cut off at the first time."""

        def __init__(self, tracking_uri):
            file = Path(tracking_uri.removeprefix("sqlite:///"))
            if not file.exists():
                file.write_text("half")
                begun.append(file)
                if len(begun) == 1:
                    raise KeyboardInterrupt
                file.write_text("whole")

        def get_experiment_by_name(self, name):
            raise NotImplementedError

    begun = []
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr("mlflow.MlflowClient", Client)
    sink = MLflowSink(tmp_path, "e", "r")
    with pytest.raises(KeyboardInterrupt):
        sink.connect()
    assert not list(tmp_path.iterdir())
    with pytest.raises(NotImplementedError):
        sink.connect()
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]
    assert (tmp_path / "mlflow.db").read_text() == "whole"


@pytest.mark.slow
def test_a_real_store_is_shared_by_the_runs_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for run in (RunDir(tmp_path / "runs" / "cartpole" / "r1"), RunDir(tmp_path / "runs" / "r2")):
        logger = get_logger("mlflow", run, "cartpole")
        logger.log_hparams({f"p{number}": number for number in range(250)})
        logger.log_scalars({f"m{number}": 1.5 for number in range(1500)} | {"nan": math.nan}, 128)
        logger.log_text("notes", "hello", 128)
        logger.flush()
        (run.path / "secret.txt").write_text("secret")
        (run.path / "texts" / "a_000000000001.txt").symlink_to(run.path / "secret.txt")
        (run.path / "videos").symlink_to(run.path / "texts")
        (run.path / "texts" / "other.txt").write_text("of somebody else")
        logger.close()
        assert logger.failures == {}
    shared = tmp_path / "runs" / "mlflow.db"
    client = import_module("mlflow").MlflowClient(f"sqlite:///{shared}")
    (experiment,) = client.search_experiments(filter_string="name = 'cartpole'")
    entries = client.search_runs([experiment.experiment_id])
    assert {entry.info.run_name for entry in entries} == {"r1", "r2"}
    for entry in entries:
        assert entry.info.status == "FINISHED"
        assert (len(entry.data.params), len(entry.data.metrics)) == (250, 1501)
    sent = [path.name for path in (tmp_path / "runs" / "mlflow_artifacts").rglob("*.txt")]
    assert sent == ["notes_000000000128.txt"] * 2
    assert str(shared) in logger.how_to_view()["mlflow"]


@pytest.mark.slow
def test_a_real_wandb_run_takes_everything_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    logger = get_logger("wandb", tmp_path, "run", wandb_kwargs={"tags": ["a"]})
    logger.log_hparams({"lr": 0.5})
    logger.log_scalar("x", 1.0, 1)
    logger.log_text("notes", "hello", 1)
    logger.log_image("frame", np.zeros((4, 4), np.uint8), 2)
    logger.log_video("policy", np.zeros((3, 3, 8, 8), np.uint8), 3)
    logger.close("failed")
    assert logger.failures == {}
    assert len(list((tmp_path / "run").glob("wandb/offline-run-*/*.wandb"))) == 1
    assert len(list((tmp_path / "run" / "wandb").rglob("*.gif"))) == 1
    sent = json.loads((tmp_path / "run" / "wandb.json").read_text())["sent"]
    assert sent == {"x": 1, "file texts/notes": 1, "file images/frame": 2, "file videos/policy": 3}
    assert "wandb sync" in logger.how_to_view()["wandb"]
