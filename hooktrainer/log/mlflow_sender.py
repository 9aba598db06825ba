"""Sends a run's files to an MLflow store in order.

`python -m hooktrainer.log.mlflow_sender RUN` sends during the run, `hooktrainer sync RUN` after it.
What is left follows from the store: the last step of each metric, and a tag with the number of
resumes. So either process may be killed at any moment.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import posixpath
import re
import stat
import sys
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
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
_SQLITE: Final = "sqlite:///"
_KEY: Final = "hooktrainer.log"
_REWINDS: Final = "hooktrainer.rewinds"
_ATTEMPTS: Final = 3
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
        self._files: dict[str, int] | None = None
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

        self._hparams, self._files, self._reached, self._bytes = {}, None, None, 0
        with _quiet(), _store_lock(self._store):
            self._client = client = MlflowClient(tracking_uri=self._store)
            found = self._note["run_id"]
            if found is None or not self._is_active(found):
                found = self._find(client)
            if found is not None:
                client.update_run(found, status="RUNNING")
            else:
                run = client.create_run(
                    self._experiment_id(client),
                    start_time=self._note["started"],
                    run_name=self._note["run_name"],
                    tags={
                        **self._note["tags"],
                        _KEY: self._note["key"],
                        _REWINDS: str(len(self._note["rewinds"])),
                    },
                )
                found = run.info.run_id
        self._run_id = found

    def _compare(self, size: int) -> dict[str, int]:
        """Apply resumes to the store, then return the last step of each metric in it."""
        data = self._client.get_run(self._run_id).data
        reached = {metric.key: int(metric.step) for metric in data.to_proto().metrics}
        rewinds = self._note["rewinds"]
        known = data.tags.get(_REWINDS, "0")
        pending = rewinds[int(known) if known.isdecimal() else 0 :]
        if not pending:
            return reached
        kept = dict[str, int]()
        for step, raw, _ in self._read_rows(0, min(size, *pending))[0]:
            name = self._name(raw)
            kept[name] = max(step, kept.get(name, step))
        beyond = {name: kept.get(name, -1) for name in reached}
        beyond = {name: step for name, step in beyond.items() if reached[name] > step}
        if self._note["run_id"] == self._run_id:  # it has metrics of another run, too
            beyond = {name: step for name, step in beyond.items() if name in kept}
        if beyond and self._take_back(beyond):
            reached |= beyond
        elif beyond:
            log.warning(
                "MLflow run %s reaches step %d, beyond the checkpoint. %s cannot remove metrics: "
                "they stay, and are not written again up to there.",
                self._run_id,
                max(reached[name] for name in beyond),
                self.uri,
            )
        self._client.set_tag(self._run_id, _REWINDS, str(len(rewinds)))
        return reached

    def _take_back(self, kept: Mapping[str, int]) -> bool:
        """Remove the metrics after the kept steps; return whether the store allows it."""
        import sqlite3

        if not self._store.startswith(_SQLITE):
            return False
        try:
            _delete_after(_database(self._store), str(self._run_id), kept)
        except sqlite3.Error as error:
            log.warning("MLflow's SQLite store refused to forget metrics: %s", error)
            return False
        return True

    def _is_active(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        why = "it was deleted"
        try:
            if self._client.get_run(run_id).info.lifecycle_stage == "active":
                return True
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            why = str(error)
        log.warning(
            "MLflow run %s cannot be continued in %s, so a new one is begun. Reason: %s",
            run_id,
            self.uri,
            why,
        )
        return False

    def _find(self, client: Any) -> str | None:
        experiment = client.get_experiment_by_name(self._note["experiment"])
        if experiment is None:
            return None
        key = re.sub(r"\W", "", self._note["key"])
        wanted = f"tags.`{_KEY}` = '{key}'"
        found = client.search_runs([experiment.experiment_id], wanted, max_results=1)
        return found[0].info.run_id if found else None

    def _experiment_id(self, client: Any) -> Any:
        from mlflow.exceptions import MlflowException

        name = self._note["experiment"]
        found = client.get_experiment_by_name(name)
        if found is None:
            try:
                return client.create_experiment(
                    name, artifact_location=self._note["artifact_location"]
                )
            except MlflowException:  # another process was first
                found = client.get_experiment_by_name(name)
                if found is None:
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
            self._reached = self._compare(file.st_size)
        rows, end = self._read_rows(self._bytes, _CHUNK)
        now = int(time.time() * 1000)
        metrics = []
        for step, raw, value in rows:
            name = self._name(raw)
            if step > self._reached.get(name, -1):
                metrics.append(Metric(name, value, now, step))
        for start in range(0, len(metrics), _MAX_METRICS):
            self._send_entities("metrics", metrics[start : start + _MAX_METRICS])
        self._bytes = end
        return len(rows)

    def _read_rows(self, start: int, size: int) -> tuple[list[tuple[int, str, float]], int]:
        """Return the valid rows among `size` bytes from `start`, and the position after them."""
        with open_file(self._metrics, self.run) as raw:
            raw.seek(start)
            data = raw.read(size) or b""
            if size >= _CHUNK and b"\n" not in data:
                data += raw.readline()
        data = data[: data.rfind(b"\n") + 1]
        rows = []
        for line in data.decode(errors="replace").split("\n"):
            if line and line != HEADER.strip():
                with contextlib.suppress(ValueError):
                    rows.append(parse_row(line))
        return rows, start + len(data)

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
        """Send metrics, parameters or tags; leave out any that the server refuses."""
        if not entities:
            return
        try:
            self._client.log_batch(self._run_id, synchronous=True, **{kind: entities})
        except Exception as error:
            if not _is_refusal(error):
                raise
            if not self._is_active(str(self._run_id)):
                self._run_id = None
                raise
            if len(entities) > 1:
                middle = len(entities) // 2
                self._send_entities(kind, entities[:middle])
                self._send_entities(kind, entities[middle:])
            else:
                log.warning("MLflow refuses %s, which is left out of it: %s", entities[0], error)

    def _send_files(self) -> int:
        """Send texts, images and videos that the store does not have."""
        written = self._written()
        if self._files is None:
            self._files = {}
            if written and not self._note["rewinds"]:
                with contextlib.suppress(Exception):  # not every store lists artifacts
                    self._files = {name: written.get(name, 0) for name in self._artifacts()}
        number = 0
        for place, when in written.items():
            if self._files.get(place) != when:
                number += self._send_file(place, when)
        return number

    def _send_file(self, place: str, when: int) -> int:
        assert self._files is not None
        folder = posixpath.dirname(place)
        try:
            self._client.log_artifact(self._run_id, str(self.run / place), folder)
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
            for parent, _, names in os.walk(self.run / folder):
                for name in names:
                    file = Path(parent, name)
                    entry = file.lstat()
                    ours = re.search(r"_\d{12,}\.\w+$", name) and file.suffix == suffix
                    if ours and stat.S_ISREG(entry.st_mode) and entry.st_mtime_ns >= since:
                        found[file.relative_to(self.run).as_posix()] = entry.st_mtime_ns
        return dict(sorted(found.items()))

    def _artifacts(self) -> list[str]:
        found, folders = list[str](), list(_FOLDERS)
        while folders:
            for entry in self._client.list_artifacts(self._run_id, folders.pop()):
                (folders if entry.is_dir else found).append(entry.path)
        return found

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


def _database(uri: str) -> str:
    return uri[len(_SQLITE) :].split("?", 1)[0]


def _is_refusal(error: Exception) -> bool:
    """Return whether the server refuses the content of a request."""
    return getattr(error, "error_code", None) in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")


def _delete_after(database: str, run_id: str, kept: Mapping[str, int]) -> None:
    """Delete metrics after a step, by name, from an MLflow SQLite store."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(database, timeout=30)) as store, store:
        store.executemany(
            "DELETE FROM metrics WHERE run_uuid = ? AND key = ? AND step > ?",
            [(run_id, name, step) for name, step in kept.items()],
        )
        store.execute("DELETE FROM latest_metrics WHERE run_uuid = ?", (run_id,))
        store.execute(
            "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) "
            "SELECT key, value, max(timestamp), step, is_nan, run_uuid FROM metrics AS m "
            "WHERE run_uuid = ? AND step = (SELECT max(step) FROM metrics "
            "WHERE run_uuid = m.run_uuid AND key = m.key) GROUP BY key",
            (run_id,),
        )


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


@contextlib.contextmanager
def _store_lock(uri: str) -> Iterator[None]:
    """Lock a SQLite store while opening it, since the first process creates its tables."""
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
    """Silence MLflow's messages about new tables."""
    loggers = [logging.getLogger(name) for name in ("alembic", "mlflow.store.db.utils")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def reason(error: BaseException) -> str:
    """Return the first cause of an error in one short line."""
    first, seen = error, {id(error)}
    while (cause := first.__cause__ or first.__context__) is not None and id(cause) not in seen:
        first = cause
        seen.add(id(cause))
    text = getattr(first, "strerror", None) or str(first).strip() or type(first).__name__
    line = text.splitlines()[0]
    return line if len(line) <= 200 else f"{line[:200]} …"


def send_until_finished(sender: Sender, finish: threading.Event, say: Callable[..., None]) -> bool:
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
                say(
                    ok=False,
                    text=f"{sender.uri} cannot be written to ({reason(error)}). What is logged is "
                    f"kept in {sender.run} and sent when it can be.",
                )
            is_failing = True
            if was_last:
                return False
            finish.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            if is_failing:
                say(ok=True, text=f"{sender.uri} can be written to again.")
                is_failing, pause = False, _FIRST_PAUSE
            if not number:
                finish.wait(_POLL)


def bound_requests() -> str:
    """Limit requests to one attempt of ten seconds by default; return the seconds."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    return os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")


def main() -> None:
    """Send the given run until standard input ends the process."""
    # What is printed by anything else must not get among the messages for the parent.
    words = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    finish = threading.Event()
    end_with_parent(on_input=finish.set)
    bound_requests()
    run, done = Path(sys.argv[1]), False

    def say(*, ok: bool | None, text: str) -> None:
        print(json.dumps({"ok": ok, "text": text}), file=words, flush=True)

    log.addHandler(_ForwardWarnings(say))
    while not finish.is_set():
        with sending_lock(run) as free:
            if free:
                sender = Sender(run, os.environ.get(ADDRESS))
                done = send_until_finished(sender, finish, say)
                break
        finish.wait(0.2)
    os._exit(0 if done else 1)  # whatever threads the client has begun


class _ForwardWarnings(logging.Handler):
    """Passes warnings to the training process."""

    def __init__(self, say: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(ok=None, text=record.getMessage())


if __name__ == "__main__":
    main()
