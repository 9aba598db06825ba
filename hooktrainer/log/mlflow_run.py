"""Sending a spool to MLflow, through `MlflowClient`: no global state, one request a batch."""

from __future__ import annotations

import contextlib
import io
import posixpath
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..base.endings import ENDED
from ..base.text_file import open_to_lock
from .destination import RunGoneError
from .remote_sink import public
from .sink import log
from .spool import Record

_STATUS: Final = {
    **dict.fromkeys(ENDED, "FINISHED"),
    "interrupted": "KILLED",
    "failed": "FAILED",
}
_MAX_METRICS = 1000  # these four are MLflow's limits, per request and per entity
_MAX_PARAMS = 100
_MAX_VALUE = 6000
_MAX_NAME = 250
_SQLITE: Final = "sqlite:///"
_KEY: Final = "hooktrainer.log"
_ATTEMPTS: Final = 3
_STORED: Final = re.compile(r"\d+\.\w+")


class MLflowRun:
    """One run of an MLflow store.

    A metric that is sent again has the same time, and MLflow keeps it once: (name, time, step,
    value) is a key of its table.

    Args:
        target: What `MLflowSink` says of it.
        uri: The store.
        memory: What it knows from before; see `Destination`.
    """

    def __init__(self, target: Mapping[str, Any], uri: str, memory: dict[str, Any]) -> None:
        self.memory = {"names": {}, "already": {}, **memory}
        self._target = target
        self._uri = uri
        self._client: Any = None
        self._run_id = ""

    def open(self, first: Record) -> None:
        """Find the run by its id or its tag, or begin it."""
        from mlflow import MlflowClient

        with _quiet(), _alone(self._uri):
            self._client = client = MlflowClient(tracking_uri=self._uri)
            known = self.memory.get("run_id")
            if known is None and "lost" not in self.memory:
                known = self._target["run_id"]
            since = 0  # a run with our tag is ours from its beginning on
            if known is None:
                known = self._find(client)
            else:
                self._check_active(known)
                since = first["time"]
            if known is not None:
                client.update_run(known, status="RUNNING")
            else:
                run = client.create_run(
                    self._experiment_id(client),
                    start_time=first["time"],
                    run_name=self._target["run_name"],
                    tags={**self._target["tags"], _KEY: self._target["key"]},
                )
                known = run.info.run_id
        self.memory.setdefault("since", since)
        self.memory["run_id"] = self._run_id = known

    def take_back(self, time: int) -> None:
        """Remove the metrics of later records, or else note up to which step each is there."""
        import sqlite3

        time = max(time, self.memory["since"] - 1)
        if self._uri.startswith(_SQLITE):
            try:
                _delete_after(_database(self._uri), self._run_id, time)
                return
            except sqlite3.Error as error:
                log.warning("MLflow's SQLite store refused to forget metrics: %s", error)
        already = self.memory["already"]
        for name in self._client.get_run(self._run_id).data.metrics:
            history = self._client.get_metric_history(self._run_id, name)
            if later := [metric.step for metric in history if metric.timestamp > time]:
                already[name] = max(later)
        if already:
            log.warning(
                "MLflow run %s reaches step %d, beyond the checkpoint. %s cannot remove metrics: "
                "they stay, and are not written again up to there.",
                self._run_id,
                max(already.values()),
                public(self._uri),
            )

    def send(self, records: Sequence[Record], files: Path) -> None:
        """Send records, in order."""
        try:
            self._send(records, files)
        except Exception as error:
            if getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST":
                self._check_active(self._run_id)
            raise

    def _send(self, records: Sequence[Record], files: Path) -> None:
        from mlflow.entities import Metric

        metrics: list[Any] = []
        for record in records:
            if "metrics" in record:
                for raw, value in record["metrics"].items():
                    name = self._name(raw)
                    if record["step"] > self.memory["already"].get(name, -1):
                        metrics.append(Metric(name, value, record["time"], record["step"]))
                continue
            self._send_metrics(metrics)
            metrics = []
            if "hparams" in record:
                self._send_hparams(record["hparams"])
            elif "file" in record:
                self._send_file(record["file"], files / Path(record["stored"]).name)
            else:
                status = _STATUS[record["end"]]
                with contextlib.redirect_stdout(io.StringIO()):  # it says where to look
                    self._client.set_terminated(self._run_id, status, end_time=record["time"])
        self._send_metrics(metrics)

    def _send_metrics(self, metrics: list[Any]) -> None:
        for start in range(0, len(metrics), _MAX_METRICS):
            self._send_entities("metrics", metrics[start : start + _MAX_METRICS])

    def _send_hparams(self, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Param, RunTag

        known = self._client.get_run(self._run_id).data.params
        params, tags, taken = [], [], set[str]()
        for raw, value in config.items():
            name, text = _clean(raw, taken), str(value)[:_MAX_VALUE]
            taken.add(name)
            if name not in known:
                params.append(Param(name, text))
            elif known[name] != text:
                tags.append(RunTag(name, text))
        for kind, entities in (("params", params), ("tags", tags)):
            for start in range(0, len(entities), _MAX_PARAMS):
                self._send_entities(kind, entities[start : start + _MAX_PARAMS])

    def _send_entities(self, kind: str, entities: list[Any]) -> None:
        """Send metrics, parameters or tags; one that the server refuses takes no other with it."""
        if not entities:
            return
        try:
            self._client.log_batch(self._run_id, synchronous=True, **{kind: entities})
        except Exception as error:
            if not _is_refusal(error):
                raise
            self._check_active(self._run_id)
            if len(entities) > 1:
                middle = len(entities) // 2
                self._send_entities(kind, entities[:middle])
                self._send_entities(kind, entities[middle:])
            else:
                log.warning("MLflow refuses %s, which is left out of it: %s", entities[0], error)

    def _send_file(self, place: str, file: Path) -> None:
        # It was sent to another server before this one; or somebody made it who wants to be sent
        # more than what was logged.
        if file.is_symlink() or not _STORED.fullmatch(file.name) or not file.is_file():
            return
        folder, name = posixpath.split(place)
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copyfile(file, Path(scratch, name))
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    self._client.log_artifact(self._run_id, str(Path(scratch, name)), folder)
                except Exception as error:
                    self._check_active(self._run_id)  # raises if it is not only the artifacts
                    if attempt == _ATTEMPTS:
                        log.warning("MLflow takes no artifact, %s is left out: %s", place, error)
                    time.sleep(attempt)
                else:
                    return

    def _check_active(self, run_id: str) -> None:
        from mlflow.exceptions import MlflowException

        why = "it was deleted"
        try:
            if self._client.get_run(run_id).info.lifecycle_stage == "active":
                return
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            why = str(error)
        log.warning(
            "MLflow run %s cannot be continued in %s, so a new one is begun. Reason: %s",
            run_id,
            public(self._uri),
            why,
        )
        raise RunGoneError(f"MLflow run {run_id} is gone")

    def _find(self, client: Any) -> str | None:
        experiment = client.get_experiment_by_name(self._target["experiment"])
        if experiment is None:
            return None
        key = re.sub(r"\W", "", self._target["key"])
        wanted = f"tags.`{_KEY}` = '{key}'"
        found = client.search_runs([experiment.experiment_id], wanted, max_results=1)
        return found[0].info.run_id if found else None

    def _experiment_id(self, client: Any) -> Any:
        from mlflow.exceptions import MlflowException

        name = self._target["experiment"]
        found = client.get_experiment_by_name(name)
        if found is None:
            try:
                return client.create_experiment(
                    name, artifact_location=self._target["artifact_location"]
                )
            except MlflowException:  # another process was first
                found = client.get_experiment_by_name(name)
                if found is None:
                    raise
        return found.experiment_id

    def _name(self, raw: str) -> str:
        names = self.memory["names"]
        if raw not in names:
            names[raw] = _clean(raw, names.values())
        return str(names[raw])


def _clean(name: str, taken: Collection[str]) -> str:
    """Return `name` as MLflow accepts it, a relative path of `[A-Za-z0-9_. :/-]`, and not taken."""
    clean = re.sub(r"[^\w. :/-]", "_", name, flags=re.ASCII)[:_MAX_NAME]
    clean = posixpath.normpath(clean.replace("..", "_")).strip("/")
    clean = "unnamed" if clean in ("", ".") else clean
    if clean in taken:
        clean = f"{clean[: _MAX_NAME - 9]}_{zlib.crc32(name.encode()):08x}"
    return clean


def _database(uri: str) -> str:
    return uri[len(_SQLITE) :].split("?", 1)[0]


def _is_refusal(error: Exception) -> bool:
    """Whether a request is refused for what it says, and will be again."""
    return getattr(error, "error_code", None) in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")


def _delete_after(database: str, run_id: str, time: int) -> None:
    """Remove a run's metrics after a time from an MLflow SQLite store."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(database, timeout=30)) as store, store:
        store.execute("DELETE FROM metrics WHERE run_uuid = ? AND timestamp > ?", (run_id, time))
        store.execute("DELETE FROM latest_metrics WHERE run_uuid = ?", (run_id,))
        store.execute(
            "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) "
            "SELECT key, value, max(timestamp), step, is_nan, run_uuid FROM metrics AS m "
            "WHERE run_uuid = ? AND step = (SELECT max(step) FROM metrics "
            "WHERE run_uuid = m.run_uuid AND key = m.key) GROUP BY key",
            (run_id,),
        )


@contextlib.contextmanager
def _alone(uri: str) -> Iterator[None]:
    """Let one process at a time make or open a SQLite store: its tables are made by the first."""
    if not uri.startswith(_SQLITE):
        yield
        return
    import fcntl

    place = Path(_database(uri)).parent
    place.mkdir(parents=True, exist_ok=True)
    with open(open_to_lock(place / ".mlflow.lock"), "wb") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep MLflow from printing a page about the tables it creates."""
    import logging

    loggers = [logging.getLogger(name) for name in ("alembic", "mlflow.store.db.utils")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
