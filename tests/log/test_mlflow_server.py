"""Sending beside a run and after it, with servers that refuse, are silent, slow, or fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_mlflow import FakeMLflow, SilentServer, closed_port

from hooktrainer import get_logger
from hooktrainer.cli import main
from hooktrainer.log import Logger, read_csv
from hooktrainer.log.mlflow_sender import Sender

pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")


def logger_to(uri: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Logger:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return get_logger(["csv", "mlflow"], place, "run")


def log(logger: Logger, steps: range) -> None:
    for step in steps:
        logger.log_scalars({"x": step / 3, "y": -step}, step)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def sync(run: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return main(["sync", str(run)])


def same_as_csv(server: FakeMLflow, run: Path) -> bool:
    expected = read_csv(run)
    return bool(expected) and all(server.history(name) == rows for name, rows in expected.items())


def test_an_unreachable_server_is_reported_and_synced_later(tmp_path, monkeypatch, caplog, capsys):
    uri = f"http://127.0.0.1:{closed_port()}"
    logger = logger_to(uri, tmp_path, monkeypatch)
    logger.log_hparams({"lr": 0.5})
    log(logger, range(10))
    assert logger.state_dict()["sinks"]["csv"]["step"] == 9
    wait_for(lambda: "cannot be written to (Connection refused)" in caplog.text)
    log(logger, range(10, 20))
    logger.close()
    assert logger.failures == {}
    assert f"not everything has been sent to {uri}" in caplog.text
    assert f"hooktrainer sync {tmp_path / 'run'}" in caplog.text

    monkeypatch.setattr("hooktrainer.cli.logs._PAUSES", (0.01, 0.01, 0.01, 0.01))
    assert sync(tmp_path / "run", uri, monkeypatch) == 1
    first, *again, last = capsys.readouterr().err.strip().splitlines()
    assert first.endswith(f"run: sending to {uri}, which has 10 s for each answer")
    assert [line.partition("); ")[2] for line in again] == [
        f"{left}, the next in 0.01 s"
        for left in ("4 more attempts", "3 more attempts", "2 more attempts", "1 more attempt")
    ]
    assert "cannot be written to (Connection refused)" in last
    with FakeMLflow() as server:
        server.fail, server.lose = 7, 11
        assert sync(tmp_path / "run", server.uri, monkeypatch) == 0
        assert same_as_csv(server, tmp_path / "run")
        (run,) = server.runs.values()
        assert (run["status"], run["params"]) == ("FINISHED", {"lr": "0.5"})
        assert "40 values sent" in capsys.readouterr().out


@pytest.mark.slow
def test_a_server_that_recovers_receives_everything(tmp_path, monkeypatch, caplog):
    port = closed_port()
    logger = logger_to(f"http://127.0.0.1:{port}", tmp_path, monkeypatch)
    log(logger, range(10))
    wait_for(lambda: "cannot be written to" in caplog.text)
    with FakeMLflow(port) as server:
        log(logger, range(10, 20))
        wait_for(lambda: "can be written to again" in caplog.text)
        logger.close()
        assert same_as_csv(server, tmp_path / "run")
    assert len([r for r in caplog.records if "'mlflow'" in r.message]) == 2


def test_a_silent_server_delays_nothing(tmp_path, monkeypatch, caplog):
    with SilentServer() as server:
        logger = logger_to(server.uri, tmp_path, monkeypatch)
        log(logger, range(10))
        assert logger.state_dict()["sinks"]["csv"]["step"] == 9
        logger.set_deadline(time.monotonic() + 1)
        logger.close("interrupted")
    assert logger.failures == {}
    assert "not everything has been sent" in caplog.text
    assert len(read_csv(tmp_path / "run")["x"]) == 10


KILLED = """
import os, signal, sys, time
from pathlib import Path
from hooktrainer import get_logger
logger = get_logger(["csv", "mlflow"], sys.argv[1], "run")
for step in range(50):
    logger.log_scalars({"x": step / 3, "y": -step}, step)
logger.flush()
print(logger.sinks["mlflow"].guarded.sink._sender._program.pid, flush=True)
while not Path(sys.argv[1], "sent").exists():
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_killed_at_any_moment_all_of_it_arrives_once(tmp_path, monkeypatch):
    with FakeMLflow() as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
        command = [sys.executable, "-c", KILLED, str(tmp_path)]
        run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        wait_for(lambda: any(run["metrics"] for run in server.runs.values()))
        (tmp_path / "sent").touch()
        assert run.wait(60) == -9
        with run.stdout as output:
            sender = output.read().strip()
        wait_for(lambda: not Path(f"/proc/{sender}/stat").exists() or is_zombie(sender))
        for row in [row for row in next(iter(server.runs.values()))["metrics"] if row[2] > 30]:
            next(iter(server.runs.values()))["metrics"].remove(row)  # killed in the middle
        server.delay = 0.2
        before = server.requests
        killed = subprocess.Popen(
            [sys.executable, "-m", "hooktrainer", "sync", str(tmp_path / "run")]
        )
        wait_for(lambda: server.requests > before + 2)
        killed.kill()
        assert killed.wait() == -9
        server.delay = 0.0
        assert sync(tmp_path / "run", server.uri, monkeypatch) == 0
        assert same_as_csv(server, tmp_path / "run")
        assert [run["status"] for run in server.runs.values()] == ["KILLED"]


def is_zombie(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


class NoSender:
    def __init__(self, *_: object) -> None: ...

    def finish(self, seconds: float) -> bool:
        return True


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("when", [5, 7, 11])
def test_a_server_that_fails_at_any_request_has_every_value_once(tmp_path, monkeypatch, when, lost):
    with FakeMLflow() as server:
        monkeypatch.setattr("hooktrainer.log.mlflow._Sender", NoSender)
        logger = logger_to(server.uri, tmp_path, monkeypatch)
        log(logger, range(20))
        logger.close()
        setattr(server, "lose" if lost else "fail", when)
        monkeypatch.setattr("hooktrainer.log.mlflow_sender._CHUNK", 40)
        sender = Sender(tmp_path / "run", server.uri)
        while True:
            try:
                if not sender.send_some():
                    break
            except Exception:
                continue
        assert len(server.runs) == 1
        assert same_as_csv(server, tmp_path / "run")
