"""`MLflowSink`: sends a run's files to an MLflow store from another process.

The files are ``metrics.csv``, ``texts/``, ``images/`` and ``videos/`` of the CSV logger.
``mlflow.json`` holds the destination. The progress is read from the store; see `mlflow_sender`.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ..base.child_program import ChildProgram
from ..base.plain import flatten_config
from ..base.text_file import write_atomically
from ..base.untrusted import read_file
from ..base.words import shell_word
from .csv import HEADER
from .sink import Event, Histogram, HParams, LogPlace, Scalars, Sink, log

_SQLITE: Final = "sqlite:///"
_ENVIRONMENT: Final = "MLFLOW_TRACKING_URI"

NOTE: Final = "mlflow.json"
"""File with a run's destination, parameters and ending."""

ADDRESS: Final = "HOOKTRAINER_SEND_TO"
"""Environment variable with the address, including secrets, for the sending process."""


class MLflowSink(Sink):
    """Writes to one MLflow run, the same one after a resume.

    Configurations become parameters with dotted names; a parameter changed by a resume becomes a
    tag, since MLflow cannot change parameters. Characters that MLflow does not accept become `_`.

    Training never waits for the server: another process sends the files of the `CSVSink` of the
    same directory. The run has the tag `hooktrainer.log`. The time of a value is when it was sent.

    MLflow cannot remove metrics: what was sent after the checkpoint of a resume stays, and those
    steps are not written again.

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
    closing = 30.0

    @classmethod
    def at(cls, place: LogPlace, **kwargs: Any) -> MLflowSink:
        """Create the sink for a run, tagged with the run's id."""
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
        super().__init__()
        environment = os.environ.get(_ENVIRONMENT)
        place = (store or directory).absolute()
        uri = tracking_uri or environment or f"{_SQLITE}{place / 'mlflow.db'}"
        if not tracking_uri and not environment:
            artifact_location = artifact_location or (place / "mlflow_artifacts").as_uri()
        self.directory = directory.absolute()
        metrics, earlier = self.directory / "metrics.csv", read_note(self.directory)
        # Rows of an earlier run: the CSV sink moves them away before it writes.
        others = metrics.stat() if metrics.exists() else None
        if others is not None and others.st_size <= len(HEADER):
            others = None
        repeats = others is None and "key" in earlier  # a start whose logs were deleted
        self._note = {
            "uri": public(_absolute(uri)),
            "follows_environment": not tracking_uri,
            "experiment": experiment,
            "run_name": run_name,
            "artifact_location": artifact_location and _absolute(artifact_location),
            "tags": dict(tags or {}),
            "run_id": run_id,
            "key": earlier["key"] if repeats else uuid.uuid4().hex,
            "others": others and [others.st_ino, others.st_mtime_ns],
            "started": int(time.time() * 1000),
            "hparams": {},
        }
        self._uri = _absolute(uri)
        self._changed = True
        self._used = False
        self._sender: _Sender | None = None

    def write(self, event: Event) -> None:
        """Keep the configuration; the sender reads the rest from the CSV sink's files."""
        if isinstance(event, HParams):
            self._note["hparams"] = flatten_config(event.config)
            self._changed = True
        self._used = self._used or not isinstance(event, Histogram)

    def write_scalars(self, event: Scalars) -> None:
        """Mark the sink as used."""
        self.write(event)

    def flush(self) -> None:
        """Write the note and start the sender if necessary; one that died is not started again."""
        if not self._used:
            return
        if self._changed:
            self._write_note()
        if self._sender is None:
            self._sender = _Sender(self.name, self.directory, self._uri)

    def close(self, status: str = "finished") -> None:
        """Note the status, wait within limits until all is sent, and warn if it is not."""
        self.flush()
        if self._sender is None:
            return
        self._note |= {"status": status, "ended": int(time.time() * 1000)}
        self._write_note()
        del self._note["status"], self._note["ended"]
        sender, self._sender = self._sender, None
        self._used, self._changed = False, True
        if not sender.finish(max(0.0, min(self.closing, self.deadline - 0.25 - monotonic()))):
            log.warning(
                "Logger %r: not everything has been sent to %s. To send the rest: hooktrainer "
                "sync %s",
                self.name,
                self._note["uri"],
                shell_word(self.directory),
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the key that identifies the run on the server."""
        return {"key": self._note["key"]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue the saved run after the rows that the `CSVSink` has kept."""
        if self._sender is not None:
            self._sender.kill()
            self._sender = None
        earlier = read_note(self.directory)
        if earlier.get("key") != state_dict["key"]:
            earlier = {}
        self._note |= {
            "key": state_dict["key"],
            "others": None,
            "started": earlier.get("started", self._note["started"]),
            "hparams": earlier.get("hparams", {}) | self._note["hparams"],
        }
        self._changed = True

    def state_at(self, step: int) -> dict[str, Any]:
        """Return the key."""
        return self.state_dict()

    def after_fork(self) -> None:
        """Leave the sender to the parent."""
        self._sender = None

    def how_to_view(self) -> str:
        """Return the command that shows the store, or the server's address."""
        uri = str(self._note["uri"])
        word = shell_word(uri)
        return word if uri.startswith("http") else f"mlflow ui --backend-store-uri {word}"

    def _write_note(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_atomically(self.directory / NOTE, json.dumps(self._note), durable=False)
        self._changed = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sender": None, "deadline": math.inf}

    def __repr__(self) -> str:
        return f"{self.name}: {self._note['uri']}"


class _Sender:
    """The sending process, and a thread that logs what it prints."""

    def __init__(self, name: str, run: Path, uri: str) -> None:
        self._name = name
        self._run = run
        self._is_asked_to_end = False
        self._program = ChildProgram(
            "hooktrainer.log.mlflow_sender",
            str(run),
            environ={ADDRESS: uri},
            nice=5,  # training comes first
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        threading.Thread(target=self._listen, name=f"{name}-sender", daemon=True).start()

    def finish(self, seconds: float) -> bool:
        """Let it send the rest; return whether it did in time. It is killed otherwise."""
        self._is_asked_to_end = True
        self._program.send_line(b"finish")
        code = self._program.wait(seconds)
        self.kill()
        return code == 0

    def kill(self) -> None:
        """End it at once."""
        self._is_asked_to_end = True
        self._program.kill()

    def _listen(self) -> None:
        with self._program.output as lines:
            for line in lines:
                log.warning("Logger %r: %s", self._name, line.decode().rstrip())
        if not self._is_asked_to_end:
            log.warning(
                "Logger %r: the process that sends has died. What is logged is kept; to send it: "
                "hooktrainer sync %s",
                self._name,
                shell_word(self._run),
            )


def read_note(run: Path) -> dict[str, Any]:
    """Read `mlflow.json` of a run; empty if it cannot be read."""
    with suppress(OSError, ValueError):
        note = json.loads(read_file(run / NOTE, run))
        if isinstance(note, dict) and "key" in note:
            return note
    return {}


def public(uri: str) -> str:
    """Remove the user name and password from an address.

    Examples:
        >>> public("https://me:secret@example.org/mlflow")
        'https://example.org/mlflow'
    """
    return re.sub(r"(?<=://)[^/@]*@", "", uri)


def address(note: Mapping[str, Any]) -> str:
    """Return the run's store: the environment's if that was used before, else the saved one."""
    environment = os.environ.get(_ENVIRONMENT) if note["follows_environment"] else None
    return _absolute(environment or note["uri"])


def _absolute(uri: str) -> str:
    """Make a SQLite address or a path absolute."""
    if uri.startswith(_SQLITE):
        return f"{_SQLITE}{Path(uri[len(_SQLITE) :]).absolute()}"
    return uri if ":" in uri else str(Path(uri).absolute())
