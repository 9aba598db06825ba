"""`MLflowSink`: sends a run to an MLflow store."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import posixpath
import re
import time
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..base.endings import ENDED
from ..base.fs import link
from ..base.plain import flatten_config
from ..base.words import shell_word
from .sender import Sender

_SQLITE: Final = "sqlite:///"
_STATUS: Final = dict.fromkeys(ENDED, "FINISHED") | {"interrupted": "KILLED", "failed": "FAILED"}
_KEY: Final = "hooktrainer.log"
_MAX_METRICS: Final = 1000  # these four are MLflow's limits, per request and per entity
_MAX_PARAMS: Final = 100
_MAX_VALUE: Final = 6000
_MAX_NAME: Final = 250


class MLflowSink(Sender):
    """Sends a run's files to one MLflow run, the same one after a resume.

    Configurations become parameters with dotted names; a parameter changed by a resume becomes a
    tag, since MLflow cannot change parameters. Characters that MLflow does not accept become `_`.
    The run has the tag `hooktrainer.log`. The time of a value is when it was sent.

    MLflow cannot remove metrics: what was sent after the checkpoint of a resume stays, and those
    steps are not written again. A request is tried once, for ten seconds, unless
    `MLFLOW_HTTP_REQUEST_MAX_RETRIES` and `MLFLOW_HTTP_REQUEST_TIMEOUT` are set.

    Args:
        directory: Directory of the run, with the `metrics.csv` of a `CSVSink`.
        experiment: Name of the MLflow experiment.
        run_name: Name of the MLflow run.
        tracking_uri: The store; by default `MLFLOW_TRACKING_URI`, else SQLite in `store`.
        artifact_location: Artifacts of a new experiment; by default in `store` for its SQLite file,
            else chosen by the server.
        tags: Tags of a new run.
        run_id: An existing run to continue. Steps of a metric that it has already are not sent.
        store: Directory of `mlflow.db` and `mlflow_artifacts/`, shared by runs; by default
            `directory`.
    """

    name = "mlflow"
    needs = "mlflow"

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
        store: Path | None = None,
    ) -> None:
        place = (store or directory).absolute()
        environment = os.environ.get("MLFLOW_TRACKING_URI")
        if not tracking_uri and not environment:
            artifact_location = artifact_location or (place / "mlflow_artifacts").as_uri()
        elif environment and public(environment) == tracking_uri:
            tracking_uri = environment  # as the note has it, without the password
        uri = _absolute(tracking_uri or environment or f"{_SQLITE}{place / 'mlflow.db'}")
        options: dict[str, Any] = {"experiment": experiment, "run_name": run_name}
        options |= {"tracking_uri": public(uri), "tags": dict(tags or {}), "run_id": run_id}
        options["artifact_location"] = artifact_location and _absolute(artifact_location)
        super().__init__(directory, options, run=uuid.uuid4().hex)
        self._uri = uri
        self._run_id = run_id
        self._names: dict[str, str] = {}

    @property
    def address(self) -> str:
        """The store, without user and password."""
        return public(self._uri)

    def connect(self) -> dict[str, int]:
        """Find or create the run; return the last step that it has of each metric."""
        from mlflow import MlflowClient

        for name in ("alembic", "mlflow.store.db.utils"):  # they log new tables
            logging.getLogger(name).setLevel(logging.WARNING)
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        _create_store(self._uri)
        client, options = MlflowClient(tracking_uri=self._uri), self.note["options"]
        experiment = client.get_experiment_by_name(options["experiment"])
        if experiment is None:
            place = client.create_experiment(
                options["experiment"], artifact_location=options["artifact_location"]
            )
        else:
            place = experiment.experiment_id
        if options["run_id"] is None:
            key = re.sub(r"\W", "", self.note["run"])
            known = client.search_runs([place], f"tags.`{_KEY}` = '{key}'", max_results=1)
            self._run_id = known[0].info.run_id if known else None
        if self._run_id is not None:
            client.update_run(self._run_id, status="RUNNING")
        else:
            tags = {**options["tags"], _KEY: self.note["run"]}
            run = client.create_run(place, run_name=options["run_name"], tags=tags)
            self._run_id = run.info.run_id
        self._client = client
        stored = client.get_run(self._run_id).data.to_proto().metrics
        return {metric.key: int(metric.step) for metric in stored}

    def send_config(self, config: Mapping[str, Any]) -> None:
        """Send the configuration as parameters, changed ones as tags."""
        from mlflow.entities import Param, RunTag

        known, taken = self._client.get_run(self._run_id).data.params, dict[str, str]()
        params, tags = [], []
        for raw, value in flatten_config(config).items():
            name, text = _clean(raw, taken), str(value)[:_MAX_VALUE]
            if name not in known:
                params.append(Param(name, text))
            elif known[name] != text:
                tags.append(RunTag(name, text))
        self._log_batches(_MAX_PARAMS, params=params)
        self._log_batches(_MAX_PARAMS, tags=tags)

    def send_values(self, rows: list[tuple[int, str, float]]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(self.name_there(name), value, now, step) for step, name, value in rows]
        self._log_batches(_MAX_METRICS, metrics=metrics)

    def send_file(self, path: Path, name: str, step: int) -> None:
        folder = path.parent.relative_to(self.directory.resolve()).as_posix()
        self._client.log_artifact(self._run_id, str(path), folder)

    def finish(self, status: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints where to look
            self._client.set_terminated(self._run_id, _STATUS.get(status, "KILLED"))

    def name_there(self, name: str) -> str:
        """Return MLflow's name of a metric."""
        return self._names.get(name) or _clean(name, self._names)

    def how_to_view(self) -> str:
        """Return the command that shows the store, or the server's address."""
        word = shell_word(self.address)
        return word if word.startswith("http") else f"mlflow ui --backend-store-uri {word}"

    def _log_batches(self, at_once: int, **entities: list[Any]) -> None:
        ((kind, every),) = entities.items()
        for start in range(0, len(every), at_once):
            batch = {kind: every[start : start + at_once]}
            self._client.log_batch(self._run_id, synchronous=True, **batch)


def _create_store(uri: str) -> None:
    """Create a SQLite store unless it exists; it appears complete, or not at all.

    MLflow takes seconds to make its tables, and cannot use or complete those of a killed process.
    """
    from mlflow import MlflowClient

    place = Path(uri.removeprefix(_SQLITE))
    if not uri.startswith(_SQLITE) or place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_name(f".tmp-{place.name}-{uuid.uuid4().hex[:8]}")
    try:
        MlflowClient(tracking_uri=f"{_SQLITE}{new}")
        if not link(new, place) and not place.exists():  # of two at once, the first one's is kept
            new.rename(place)
    finally:
        new.unlink(missing_ok=True)


def public(uri: str) -> str:
    """Remove the user name and password from an address.

    Examples:
        >>> public("https://me:secret@example.org/mlflow")
        'https://example.org/mlflow'
    """
    return re.sub(r"(?<=://)[^/@]*@", "", uri)


def _absolute(uri: str) -> str:
    """Make a SQLite address or a path absolute."""
    if uri.startswith(_SQLITE):
        return f"{_SQLITE}{Path(uri[len(_SQLITE) :]).absolute()}"
    return uri if ":" in uri else str(Path(uri).absolute())


def _clean(name: str, known: dict[str, str]) -> str:
    """Add a valid MLflow name, a relative path of `[A-Za-z0-9_. :/-]`, to those ``known``."""
    clean = re.sub(r"[^\w. :/-]", "_", name, flags=re.ASCII)[:_MAX_NAME]
    clean = posixpath.normpath(clean.replace("..", "_")).strip("/")
    clean = "unnamed" if clean in ("", ".") else clean
    if clean in known.values():
        clean = f"{clean[: _MAX_NAME - 9]}_{zlib.crc32(name.encode()):08x}"
    return known.setdefault(name, clean)
