"""Sends a run's files to an MLflow store in order.

`python -m hooktrainer.log.mlflow_sender RUN` sends during the run, `hooktrainer sync RUN` after it.
What is left follows from the store: the last step of each metric in it. So either process may be
killed at any moment.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import posixpath
import re
import stat
import sys
import threading
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ..base.child_program import end_with_parent
from ..base.endings import ENDED
from ..base.text_file import open_to_lock
from ..base.untrusted import open_file
from ..errors import ConfigError
from .csv import HEADER, parse_row
from .mlflow import ADDRESS, NOTE, address, public, read_note
from .sink import log

_FIRST_PAUSE: Final = 1.0  # seconds between two attempts, at first and at most
_LONGEST_PAUSE: Final = 30.0
_POLL: Final = 0.5
_CHUNK: Final = 1 << 18
_STATUS: Final = {
    **dict.fromkeys(ENDED, "FINISHED"),
    "interrupted": "KILLED",
    "failed": "FAILED",
}
_MAX_METRICS = 1000  # these four are MLflow's limits, per request and per entity
_MAX_PARAMS = 100
_MAX_VALUE = 6000
_MAX_NAME = 250
_KEY: Final = "hooktrainer.log"
_ATTEMPTS: Final = 3
_REFUSALS: Final = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
_FOLDERS: Final = {"texts": ".txt", "images": ".png", "videos": ".gif"}


class Sender:
    """Sends one run to one store."""

    def __init__(self, run: Path, uri: str | None = None) -> None:
        self.run = run
        self._note = read_note(run)
        if not self._note:
            raise ConfigError(f"{run / NOTE} does not say where to send the run.")
        self._store = uri or address(self._note)
        self.uri = public(self._store)
        self._metrics = run / "metrics.csv"
        self._client: Any = None
        self._run_id: str | None = None
        self._names: dict[str, str] = {}
        self._reached: dict[str, int] | None = None  # None: not compared with the rows yet
        self._bytes = 0
        self._hparams: dict[str, Any] = {}
        self._files: dict[str, int] = {}
        self._attempts: dict[str, int] = {}

    def send_some(self) -> int:
        """Send the next values and files; return how many."""
        try:
            self._note = read_note(self.run) or self._note
            if self._run_id is None:
                self._open()
            if self._note["hparams"] != self._hparams:
                self._send_hparams(self._note["hparams"])
                self._hparams = self._note["hparams"]
            return self._send_rows() + self._send_files()
        except Exception as error:
            # What of it has arrived, only the store can tell.
            self._reached, self._bytes = None, 0
            if getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST":
                self._run_id = None
            raise

    def end(self) -> None:
        """Set the run's final status; interrupted if its files have none."""
        if self._run_id is None:
            self._open()
        ended = self._note.get("ended")
        if ended is None:
            ended = int((self.run / NOTE).stat().st_mtime * 1000)
        with contextlib.redirect_stdout(io.StringIO()):  # it prints where to look
            status = _STATUS.get(self._note.get("status", ""), "KILLED")
            self._client.set_terminated(self._run_id, status, end_time=ended)

    # -- The run of the store, and what it has ---------------------------------------------------

    def _open(self) -> None:
        from mlflow import MlflowClient

        self._hparams, self._files, self._reached, self._bytes = {}, {}, None, 0
        self._client = client = MlflowClient(tracking_uri=self._store)
        found = self._note["run_id"]
        if found is None or not self._is_active(found):
            found = self._find()
        if found is not None:
            client.update_run(found, status="RUNNING")
        else:
            run = client.create_run(
                self._experiment_id(),
                start_time=self._note["started"],
                run_name=self._note["run_name"],
                tags={**self._note["tags"], _KEY: self._note["key"]},
            )
            found = run.info.run_id
        self._run_id = found

    def _is_active(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            active = bool(self._client.get_run(run_id).info.lifecycle_stage == "active")
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            active = False
        if not active:
            log.warning(
                "MLflow run %s cannot be continued in %s: it is not there any more, and a new one "
                "is begun.",
                run_id,
                self.uri,
            )
        return active

    def _find(self) -> str | None:
        experiment = self._client.get_experiment_by_name(self._note["experiment"])
        if experiment is None:
            return None
        key = re.sub(r"\W", "", self._note["key"])
        wanted = f"tags.`{_KEY}` = '{key}'"
        found = self._client.search_runs([experiment.experiment_id], wanted, max_results=1)
        return found[0].info.run_id if found else None

    def _experiment_id(self) -> Any:
        from mlflow.exceptions import MlflowException

        name, place = self._note["experiment"], self._note["artifact_location"]
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return self._client.create_experiment(name, artifact_location=place)
            except MlflowException:
                found = self._client.get_experiment_by_name(name)
                if found is None:  # else another process was first
                    raise
        return found.experiment_id

    # -- Sending ---------------------------------------------------------------------------------

    def _send_rows(self) -> int:
        from mlflow.entities import Metric

        try:
            file = self._metrics.stat()
        except FileNotFoundError:
            return 0
        if [file.st_ino, file.st_mtime_ns] == self._note["others"] or not file.st_size:
            return 0
        if self._reached is None:
            stored = self._client.get_run(self._run_id).data.to_proto().metrics
            self._reached = {metric.key: int(metric.step) for metric in stored}
        rows, end = self._next_rows()
        now = int(time.time() * 1000)
        metrics = []
        for step, raw, value in rows:
            name = self._name(raw)
            if step > self._reached.get(name, -1):
                metrics.append(Metric(name, value, now, step))
        self._send_entities("metrics", metrics, _MAX_METRICS)
        self._bytes = end
        return len(rows)

    def _next_rows(self) -> tuple[list[tuple[int, str, float]], int]:
        """Return the next valid rows, and the position after them."""
        with open_file(self._metrics, self.run) as raw:
            raw.seek(self._bytes)
            data = raw.read(_CHUNK) or b""
            if b"\n" not in data:
                data += raw.readline()
        data = data[: data.rfind(b"\n") + 1]
        rows = []
        for line in data.decode(errors="replace").splitlines():
            if line != HEADER.strip():
                with contextlib.suppress(ValueError):
                    rows.append(parse_row(line))
        return rows, self._bytes + len(data)

    def _send_hparams(self, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Param, RunTag

        known = self._client.get_run(self._run_id).data.params
        entities: dict[str, list[Any]] = {"params": [], "tags": []}
        taken = set[str]()
        for raw, value in config.items():
            name, text = _clean(raw, taken), str(value)[:_MAX_VALUE]
            taken.add(name)
            if name not in known:
                entities["params"].append(Param(name, text))
            elif known[name] != text:
                entities["tags"].append(RunTag(name, text))
        for kind, found in entities.items():
            self._send_entities(kind, found, _MAX_PARAMS)

    def _send_entities(self, kind: str, entities: list[Any], at_once: int) -> None:
        """Send metrics, parameters or tags; leave out any that the server refuses."""
        for start in range(0, len(entities), at_once):
            some = entities[start : start + at_once]
            try:
                self._client.log_batch(self._run_id, synchronous=True, **{kind: some})
            except Exception as error:
                if getattr(error, "error_code", "") not in _REFUSALS:
                    raise
                if not self._is_active(str(self._run_id)):
                    self._run_id = None
                    raise
                if len(some) > 1:
                    self._send_entities(kind, some, 1)
                else:
                    log.warning("MLflow refuses %s, which is left out of it: %s", some[0], error)

    def _send_files(self) -> int:
        """Send texts, images and videos; after a restart again, which replaces them."""
        changed = {p: when for p, when in self._written().items() if self._files.get(p) != when}
        return sum(self._send_file(place, when) for place, when in changed.items())

    def _send_file(self, place: str, when: int) -> int:
        try:
            self._client.log_artifact(self._run_id, str(self.run / place), posixpath.dirname(place))
        except Exception as error:
            self._client.get_run(self._run_id)  # raises if it is not only the artifacts
            self._attempts[place] = self._attempts.get(place, 0) + 1
            if self._attempts[place] < _ATTEMPTS:
                time.sleep(self._attempts[place])
                return 1
            log.warning("MLflow takes no artifact, %s is left out: %s", place, error)
        self._files[place] = when
        return 1

    def _written(self) -> dict[str, int]:
        """Return the run's files with their times in nanoseconds."""
        found = {}
        since = (self._note["started"] - 1000) * 1_000_000
        for folder, suffix in _FOLDERS.items():
            if (self.run / folder).is_symlink():  # nothing but what was logged is sent
                continue
            for file in (self.run / folder).rglob(f"*{suffix}"):
                entry = file.lstat()
                ours = re.search(r"_\d{12,}\.\w+$", file.name) and stat.S_ISREG(entry.st_mode)
                if ours and entry.st_mtime_ns >= since:
                    found[file.relative_to(self.run).as_posix()] = entry.st_mtime_ns
        return dict(sorted(found.items()))

    def _name(self, raw: str) -> str:
        if raw not in self._names:
            self._names[raw] = _clean(raw, self._names.values())
        return self._names[raw]


def _clean(name: str, taken: Collection[str]) -> str:
    """Convert to a valid MLflow name, a relative path of `[A-Za-z0-9_. :/-]`, not in `taken`."""
    clean = re.sub(r"[^\w. :/-]", "_", name, flags=re.ASCII)[:_MAX_NAME]
    clean = posixpath.normpath(clean.replace("..", "_")).strip("/")
    clean = "unnamed" if clean in ("", ".") else clean
    if clean in taken:
        clean = f"{clean[: _MAX_NAME - 9]}_{zlib.crc32(name.encode()):08x}"
    return clean


@contextlib.contextmanager
def sending_lock(run: Path) -> Iterator[bool]:
    """Lock the sending of a run; yield whether no other process holds the lock."""
    import fcntl

    fd = open_to_lock(run / ".mlflow.sending")
    try:
        free = True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # a file system without locks allows two
            free = not isinstance(error, BlockingIOError)
        yield free
    finally:
        os.close(fd)


def reason(error: BaseException) -> str:
    """Return the first cause of an error in one short line."""
    first, seen = error, {id(error)}
    while (cause := first.__cause__ or first.__context__) is not None and id(cause) not in seen:
        first = cause
        seen.add(id(cause))
    text = getattr(first, "strerror", None) or str(first).strip() or type(first).__name__
    line = text.splitlines()[0]
    return line if len(line) <= 200 else f"{line[:200]} …"


def send_until_finished(sender: Sender, finish: threading.Event) -> bool:
    """Send until `finish` is set and nothing is left; return whether all was sent."""
    is_failing, pause = False, _FIRST_PAUSE
    while True:
        was_last = finish.is_set()
        try:
            number = sender.send_some()
            if was_last and not number:
                sender.end()
                return True
        except Exception as error:
            if not is_failing:
                log.warning(
                    "%s cannot be written to (%s). What is logged is kept in %s and sent when it "
                    "can be.",
                    sender.uri,
                    reason(error),
                    sender.run,
                )
            is_failing = True
            if was_last:
                return False
            finish.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            if is_failing:
                log.warning("%s can be written to again.", sender.uri)
                is_failing, pause = False, _FIRST_PAUSE
            if not number:
                finish.wait(_POLL)


def bound_requests() -> str:
    """Limit requests to one attempt of ten seconds by default; return the seconds."""
    for name in ("alembic", "mlflow.store.db.utils"):  # they tell of new tables
        logging.getLogger(name).setLevel(logging.WARNING)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    return os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")


def main() -> None:
    """Send the given run until standard input ends the process."""
    # What is printed by anything else must not get among the warnings for the parent.
    warnings = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    log.addHandler(logging.StreamHandler(warnings))
    finish = threading.Event()
    end_with_parent(on_input=finish.set)
    bound_requests()
    run, done = Path(sys.argv[1]), False
    while not finish.is_set():
        with sending_lock(run) as free:
            if free:
                done = send_until_finished(Sender(run, os.environ.get(ADDRESS)), finish)
                break
        finish.wait(0.2)
    os._exit(0 if done else 1)  # whatever threads the client has begun


if __name__ == "__main__":
    main()
