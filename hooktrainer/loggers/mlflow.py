"""MLflow runs, through `MlflowClient`: no global state, one request a batch."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import tempfile
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from . import media
from .events import HParams, Image, Scalars, Text, Video
from .hparams import flatten
from .sink import Sink, log

_STATUS: Final = {
    "finished": "FINISHED",
    "stopped": "FINISHED",
    "interrupted": "KILLED",
    "failed": "FAILED",
}
_MAX_METRICS = 1000  # these four are MLflow's limits, per request and per entity
_MAX_PARAMS = 100
_MAX_VALUE = 6000
_MAX_NAME = 250


class MLflowSink(Sink):
    """Writes to one MLflow run, the same one after a resume.

    Configurations become parameters with dotted names. MLflow cannot change a parameter, so one
    that differs after a resume (a raised total) becomes a tag of the same name. Metric names get
    the characters that MLflow accepts, the others becoming `_`.

    On resume, what the run logged after the checkpoint is removed where the store is SQLite. A
    tracking server cannot remove it; there, it stays, and those steps are not written again.

    Args:
        directory: Directory of the run. Holds `mlflow.db` and `mlflow_artifacts/`, unless told
            otherwise.
        experiment: Name of the MLflow experiment.
        run_name: Name of the MLflow run.
        tracking_uri: Where the runs are kept. Defaults to the environment variable
            `MLFLOW_TRACKING_URI`, then to SQLite in `directory`.
        artifact_location: Where a new experiment keeps its artifacts. Defaults to a place inside
            `directory` for the SQLite file there, and to the server's choice elsewhere.
        tags: Tags of a new run.
        run_id: An existing run to continue.
    """

    name = "mlflow"

    def __init__(
        self,
        directory: Path,
        experiment: str,
        run_name: str,
        *,
        tracking_uri: str | None = None,
        artifact_location: str | None = None,
        tags: Mapping[str, str] | None = None,
        run_id: str | None = None,
    ) -> None:
        super().__init__()
        self.directory = directory.absolute()
        self.experiment = experiment
        self.run_name = run_name
        self.tracking_uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or ""
        self.artifact_location = artifact_location
        if not self.tracking_uri:
            self.tracking_uri = f"sqlite:///{self.directory / 'mlflow.db'}"
            self.artifact_location = (
                artifact_location or (self.directory / "mlflow_artifacts").as_uri()
            )
        self.tags = dict(tags or {})
        self.run_id = run_id
        self._client: Any = None
        self._pending: list[Any] = []
        self._names: dict[str, str] = {}
        self._step = 0
        self._rewind_to: int | None = None
        self._already: dict[str, int] = {}

    def write_scalars(self, event: Scalars) -> None:
        """Gather metric values; `flush` sends them."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        for raw, value in event.values.items():
            if raw not in self._names:
                self._names[raw] = _clean(raw, self._names.values())
            self._pending.append(Metric(self._names[raw], value, now, event.step))
        self._step = event.step
        if len(self._pending) >= _MAX_METRICS:
            self.flush()

    def write_hparams(self, event: HParams) -> None:
        """Log the configuration as parameters; changed ones as tags."""
        from mlflow.entities import Param, RunTag

        client = self._open()
        known = client.get_run(self.run_id).data.params
        params, tags, taken = [], [], set[str]()
        for raw, value in flatten(event.config).items():
            name, text = _clean(raw, taken), str(value)[:_MAX_VALUE]
            taken.add(name)
            if name not in known:
                params.append(Param(name, text))
            elif known[name] != text:
                tags.append(RunTag(name, text))
        for start in range(0, len(params), _MAX_PARAMS):
            client.log_batch(self.run_id, params=params[start : start + _MAX_PARAMS])
        for start in range(0, len(tags), _MAX_PARAMS):
            client.log_batch(self.run_id, tags=tags[start : start + _MAX_PARAMS])

    def write_text(self, event: Text) -> None:
        """Log a text as an artifact, `texts/<name>_<step>.txt`."""
        self._artifact("texts", event.name, event.step, ".txt", event.text.encode())

    def write_image(self, event: Image) -> None:
        """Log a picture as an artifact, `images/<name>_<step>.png`."""
        self._artifact("images", event.name, event.step, ".png", media.png(event.pixels))

    def write_video(self, event: Video) -> None:
        """Log a film as an artifact, `videos/<name>_<step>.gif`."""
        gif = media.gif(event.frames, event.fps)
        self._artifact("videos", event.name, event.step, ".gif", gif)

    def flush(self) -> None:
        """Send the metrics gathered so far, at most 1000 a request."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        client = self._open()
        if self._already:
            pending = [m for m in pending if m.step > self._already.get(m.key, -1)]
        for start in range(0, len(pending), _MAX_METRICS):
            client.log_batch(self.run_id, metrics=pending[start : start + _MAX_METRICS])

    def close(self, status: str = "finished") -> None:
        """Send what is left and end the run: FINISHED, FAILED or KILLED."""
        self.flush()
        if self._client is not None:
            self._client.set_terminated(self.run_id, _STATUS[status])
            self._client = None

    def state_dict(self) -> dict[str, Any]:
        """The run's id, the last step, and the names metrics go by."""
        self.flush()
        self._open()  # a checkpoint without the id could not continue the run
        return {"run_id": self.run_id, "step": self._step, "names": dict(self._names)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue the saved run after the saved step."""
        self._pending.clear()
        self._client = None
        self.run_id = state_dict["run_id"]
        self._names = dict(state_dict["names"])
        self._step = self._rewind_to = state_dict["step"]

    def after_fork(self) -> None:
        """Leave the parent's metrics and its connection to it."""
        self._pending, self._client = [], None

    def how_to_view(self) -> str:
        """Return the command that shows the runs of this store."""
        return f"mlflow ui --backend-store-uri {self.tracking_uri}"

    def _open(self) -> Any:
        if self._client is not None:
            return self._client
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        if self.tracking_uri.startswith("sqlite:///"):
            Path(self.tracking_uri[len("sqlite:///") :]).parent.mkdir(parents=True, exist_ok=True)
        with _quiet():
            client = MlflowClient(tracking_uri=self.tracking_uri)
            if self.run_id is not None:
                try:
                    client.update_run(self.run_id, status="RUNNING")
                except MlflowException as error:
                    log.warning(
                        "MLflow run %s cannot be continued in %s, so a new one is begun. "
                        "Reason: %s",
                        self.run_id,
                        self.tracking_uri,
                        error,
                    )
                    self.run_id = self._rewind_to = None
            if self.run_id is None:
                run = client.create_run(
                    self._experiment_id(client), run_name=self.run_name, tags=self.tags
                )
                self.run_id = run.info.run_id
        self._client = client
        if self._rewind_to is not None:
            self._forget_after(self._rewind_to)
            self._rewind_to = None
        return client

    def _experiment_id(self, client: Any) -> Any:
        from mlflow.exceptions import MlflowException

        found = client.get_experiment_by_name(self.experiment)
        if found is None:
            try:
                return client.create_experiment(
                    self.experiment, artifact_location=self.artifact_location
                )
            except MlflowException:  # another process was first
                found = client.get_experiment_by_name(self.experiment)
                if found is None:
                    raise
        return found.experiment_id

    def _forget_after(self, step: int) -> None:
        import sqlite3

        if self.tracking_uri.startswith("sqlite:///"):
            try:
                _delete_after(self.tracking_uri[len("sqlite:///") :], str(self.run_id), step)
                return
            except sqlite3.Error as error:
                log.warning("MLflow's SQLite store refused to forget metrics: %s", error)
        for name in self._client.get_run(self.run_id).data.metrics:
            history = self._client.get_metric_history(self.run_id, name)
            self._already[name] = max(metric.step for metric in history)
        if (last := max(self._already.values(), default=step)) > step:
            log.warning(
                "MLflow run %s reaches step %d, the checkpoint step %d. %s cannot remove metrics: "
                "they stay, and are not written again up to there.",
                self.run_id,
                last,
                step,
                self.tracking_uri,
            )

    def _artifact(self, folder: str, name: str, step: int, suffix: str, content: bytes) -> None:
        client = self._open()
        place = media.file_name(name, step, suffix)
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, place.name)
            file.write_bytes(content)
            client.log_artifact(self.run_id, str(file), str(folder / place.parent))

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return {**self.__dict__, "_client": None}

    def __repr__(self) -> str:
        return f"mlflow: {self.tracking_uri}"


def _clean(name: str, taken: Collection[str]) -> str:
    """Return `name` as MLflow accepts it, a relative path of `[A-Za-z0-9_. :/-]`, and not taken."""
    clean = re.sub(r"[^\w. :/-]", "_", name, flags=re.ASCII)[:_MAX_NAME]
    clean = posixpath.normpath(clean.replace("..", "_")).strip("/")
    clean = "unnamed" if clean in ("", ".") else clean
    if clean in taken:
        clean = f"{clean[: _MAX_NAME - 9]}_{zlib.crc32(name.encode()):08x}"
    return clean


def _delete_after(database: str, run_id: str, step: int) -> None:
    """Remove a run's metrics after `step` from an MLflow SQLite store."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(database, timeout=30)) as store, store:
        store.execute("DELETE FROM metrics WHERE run_uuid = ? AND step > ?", (run_id, step))
        store.execute("DELETE FROM latest_metrics WHERE run_uuid = ?", (run_id,))
        store.execute(
            "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) "
            "SELECT key, value, max(timestamp), step, is_nan, run_uuid FROM metrics AS m "
            "WHERE run_uuid = ? AND step = (SELECT max(step) FROM metrics "
            "WHERE run_uuid = m.run_uuid AND key = m.key) GROUP BY key",
            (run_id,),
        )


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
