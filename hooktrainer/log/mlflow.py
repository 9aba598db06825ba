"""MLflow runs: what is logged goes to a spool, and from there to a server or a database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..base.words import shell_word
from .remote_sink import RemoteSink, public
from .sink import LogPlace

_SQLITE: Final = "sqlite:///"
_ENVIRONMENT: Final = "MLFLOW_TRACKING_URI"


class MLflowSink(RemoteSink):
    """Writes to one MLflow run, the same one after a resume.

    Configurations become parameters with dotted names. MLflow cannot change a parameter, so one
    that differs after a resume (a raised total) becomes a tag of the same name. Metric names get
    the characters that MLflow accepts, the others becoming `_`.

    Nothing waits for the server: what is logged goes to a spool in the run's directory, from which
    a process of its own sends it. The run is known to the server by a tag, `hooktrainer.log`.

    On resume, what the run logged after the checkpoint is removed where the store is SQLite. A
    tracking server cannot remove it; there, it stays, and those steps are not written again.

    Args:
        directory: Directory of the run.
        experiment: Name of the MLflow experiment.
        run_name: Name of the MLflow run.
        tracking_uri: Where the runs are kept. Defaults to the environment variable
            `MLFLOW_TRACKING_URI`, then to SQLite in `store`.
        artifact_location: Where a new experiment keeps its artifacts. Defaults to a place in
            `store` for the SQLite file there, and to the server's choice elsewhere.
        tags: Tags of a new run.
        run_id: An existing run to continue.
        store: Directory of `mlflow.db` and `mlflow_artifacts/`, which several runs share. Defaults
            to the run's.
    """

    needs = "mlflow"

    @classmethod
    def at(cls, place: LogPlace, **kwargs: Any) -> MLflowSink:
        """Write to the MLflow run of a run, which is tagged with its id."""
        names = {"experiment": place.experiment, "run_name": place.run, "store": place.store}
        tags = {} if place.run_id is None else {"hooktrainer.run_id": place.run_id}
        tags |= kwargs.pop("tags", None) or {}
        return cls(place.directory, **{**names, **kwargs, "tags": tags})

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
        environment = os.environ.get(_ENVIRONMENT)
        place = (store or directory).absolute()
        uri = tracking_uri or environment or f"{_SQLITE}{place / 'mlflow.db'}"
        if not tracking_uri and not environment:
            artifact_location = artifact_location or (place / "mlflow_artifacts").as_uri()
        target = {
            "uri": public(_absolute(uri)),
            "follows_environment": not tracking_uri,
            "experiment": experiment,
            "run_name": run_name,
            "artifact_location": artifact_location and _absolute(artifact_location),
            "tags": dict(tags or {}),
            "run_id": run_id,
        }
        super().__init__("mlflow", directory, target, _absolute(uri))

    def how_to_view(self) -> str:
        """Return the command that shows the runs of this store, or the server's address."""
        uri = str(self._target["uri"])
        word = shell_word(uri)
        return word if uri.startswith("http") else f"mlflow ui --backend-store-uri {word}"


def address(target: Mapping[str, Any]) -> str:
    """Where a spool goes now: where the environment says, if that chose before; else as before."""
    environment = os.environ.get(_ENVIRONMENT) if target["follows_environment"] else None
    return _absolute(environment or target["uri"])


def _absolute(uri: str) -> str:
    """A SQLite address, or a path, that is understood from any directory."""
    if uri.startswith(_SQLITE):
        return f"{_SQLITE}{Path(uri[len(_SQLITE) :]).absolute()}"
    return uri if ":" in uri else str(Path(uri).absolute())
