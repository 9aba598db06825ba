"""`Sender`: sends the files of a run's `CSVSink` to a server, during the run or after it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import textwrap
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ..base.fs import open_to_lock, write_atomically
from ..base.untrusted import open_file, read_file
from ..base.words import shell_word
from .csv import HEADER, parse_row
from .sink import Sink, log

_PAUSE: Final = 10.0  # seconds from a failure to the next attempt
_CHUNK: Final = 1 << 18
_FOLDERS: Final = {"texts": ".txt", "images": ".png", "videos": ".gif"}


class Sender(Sink):
    """Base class of sinks that send to a server; derived classes are its clients.

    It sends ``metrics.csv``, ``texts/``, ``images/`` and ``videos/``, in order and from the last
    step on that the server has of each metric. So nothing is lost or sent twice while the server is
    away, or when a process is killed; ``hooktrainer sync`` sends what a run did not. A failing
    server is reported once and tried again in intervals.

    ``<name>.json`` in the run's directory holds the destination, the configuration, and the last
    step sent of each name. All processes that log to a directory continue one run of the server,
    and one at a time sends.

    Args:
        directory: Directory of the run.
        options: Arguments that make this sender again, as values of JSON.
        run: Identifies the run on the server, if it is new.

    Attributes:
        note: The content of ``<name>.json``.
        keeps_note: Whether that is written; not by a copy to another server.
    """

    closing = 30.0
    is_awaited = False
    keeps_note = True

    def __init__(self, directory: Path, options: Mapping[str, Any], run: str) -> None:
        self.directory = directory.absolute()
        self.hint = f"To send the rest: hooktrainer sync {shell_word(self.directory)}"
        known = read_note(self.directory, self.name)
        self.note = {"run": run, "sent": {}, "config": {}} | known | {"options": dict(options)}
        self._client: Any = None
        self._lock: int | None = None
        self._reached: dict[str, int] = {}
        self._position = 0
        self._sent_config: Any = None
        self._is_used = False
        self._is_failing = False
        self._next = 0.0

    # -- What a client implements ----------------------------------------------------------------

    @property
    @abstractmethod
    def address(self) -> str:
        """The server, for messages."""

    @abstractmethod
    def connect(self) -> Mapping[str, int]:
        """Set ``_client`` to the open run; return the last step that it has of each metric."""

    @abstractmethod
    def send_config(self, config: Mapping[str, Any]) -> None:
        """Send the configuration, which may have been sent before."""

    @abstractmethod
    def send_values(self, rows: list[tuple[int, str, float]]) -> None:
        """Send steps, names and values."""

    @abstractmethod
    def send_file(self, path: Path, name: str, step: int) -> None:
        """Send a text, image or video."""

    @abstractmethod
    def finish(self, status: str) -> None:
        """Mark the run as ended."""

    def name_there(self, name: str) -> str:
        """Return the server's name of a metric."""
        return name

    # -- The sink --------------------------------------------------------------------------------

    def write(self, kind: str, *args: Any) -> None:
        """Keep a configuration; anything else is read from the files."""
        self._is_used = True
        if kind == "hparams":
            self.note["config"] = args[0]
            self._write_note()

    def flush(self) -> None:
        """Send what is new, unless the server has just failed."""
        if self._is_used and monotonic() >= self._next:
            self._attempt(None)

    def close(self, status: str = "finished") -> None:
        """Send the rest and the status; warn if that fails."""
        if not self._is_used:
            return
        self.note["status"] = status
        self._write_note()
        if not self._attempt(status):
            log.warning("Logger %r: not everything has been sent. %s", self.name, self.hint)
        self.disconnect()
        del self.note["status"]
        self._is_used = False

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Read the files again: a checkpoint may have removed rows."""
        self._position = 0

    def send(self) -> int:
        """Send everything that the server does not have; return the number of values and files.

        Raises:
            BlockingIOError: If another process sends.
        """
        if self._client is None:
            self._lock = open_to_lock(self.directory / f".{self.name}.sending")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BlockingIOError("another process sends it") from None
            except OSError:  # a file system without locks
                pass
            self._write_note()  # before the server has a run whose id only this process has
            self._reached = {n: s for n, s in self.note["sent"].items() if n.startswith("file ")}
            self._reached |= self.connect()
            self._position, self._sent_config = 0, None
        if self.note["config"] and self.note["config"] != self._sent_config:
            self.send_config(self.note["config"])
            self._sent_config = self.note["config"]
        number = 0
        while rows := self._next_rows():
            new = [row for row in rows if row[0] > self._reached.get(self.name_there(row[1]), -1)]
            if new:
                self.send_values(new)
                self._reached.update({self.name_there(name): step for step, name, _ in new})
                number += len(new)
        for path, key, step in self._files():
            if step > self._reached.get(key, -1):
                self.send_file(path, key.split("/", 1)[1], step)
                self._reached[key] = step
                number += 1
        if number:
            self.note["sent"] = self._reached
            self._write_note()
        return number

    def _attempt(self, status: str | None) -> bool:
        try:
            self.send()
            if status is not None:
                self.finish(status)
        except Exception as error:
            self.disconnect()  # only the server has a record of what has arrived
            if not self._is_failing:
                log.warning(
                    "Logger %r: %s cannot be written to (%s). What is logged is kept in %s and "
                    "sent when it can be.",
                    self.name,
                    self.address,
                    reason(error),
                    self.directory,
                )
            self._is_failing, self._next = True, monotonic() + _PAUSE
            return False
        if self._is_failing:
            log.warning("Logger %r: %s can be written to again.", self.name, self.address)
        self._is_failing = False
        return True

    def disconnect(self) -> None:
        """Leave the server, so that the next attempt begins with what it has."""
        self._client = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _next_rows(self) -> list[tuple[int, str, float]]:
        """Return the next valid rows of the CSV file."""
        path = self.directory / "metrics.csv"
        if not path.exists():
            return []
        with open_file(path, self.directory) as raw:
            raw.seek(self._position)
            data = raw.read(_CHUNK) or b""
        data = data[: data.rfind(b"\n") + 1]
        self._position += len(data)
        rows = []
        for line in data.decode(errors="replace").splitlines():
            if line != HEADER.strip():
                with suppress(ValueError):
                    rows.append(parse_row(line))
        return rows

    def _files(self) -> list[tuple[Path, str, int]]:
        """Return every logged file, with its key in ``sent`` and its step."""
        found = []
        for folder, suffix in _FOLDERS.items():
            place = self.directory.resolve() / folder
            for path in place.rglob(f"*{suffix}"):
                name = re.fullmatch(r"(.+)_(\d{12,})", path.stem)
                if name is not None and path.resolve() == path:  # nothing but what was logged
                    relative = path.relative_to(place).with_name(name[1]).as_posix()
                    found.append((path, f"file {folder}/{relative}", int(name[2])))
        return sorted(found, key=lambda item: item[2])

    def _write_note(self) -> None:
        if self.keeps_note:
            self.directory.mkdir(parents=True, exist_ok=True)
            path = self.directory / f"{self.name}.json"
            write_atomically(path, json.dumps(self.note), durable=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None, "_lock": None}

    def __repr__(self) -> str:
        return f"{self.name}: {self.address}"


def read_note(directory: Path, name: str) -> dict[str, Any]:
    """Read the note of a sender; empty if it cannot be read."""
    with suppress(OSError, ValueError):
        note = json.loads(read_file(directory / f"{name}.json", directory))
        if isinstance(note, dict) and "run" in note:
            return note
    return {}


def reason(error: BaseException) -> str:
    """Return the first cause of an error in one short line."""
    first = error
    for _ in range(20):  # causes may go in a circle
        first = first.__cause__ or first.__context__ or first
    text = getattr(first, "strerror", None) or str(first).strip() or type(first).__name__
    return textwrap.shorten(text.splitlines()[0], 200, placeholder=" …")
