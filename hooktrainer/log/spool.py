"""`Spool`: what a run has for a server, on the disk before it is sent, and for good.

One process writes it, the one that trains; one at a time sends it. What each of them knows is in a
file of its own, so that either may be killed at any moment::

    <run>/spool/<name>/
      records.jsonl   everything that was logged, in order, one record a line
      files/          pictures, films and texts that have not been sent yet
      target.json     where to send it, and from where on a resume has taken it back
      sent.json       how far it was sent, and what the server calls it
      .lock           held by the process that sends
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from ..base.text_file import open_to_lock, write_atomically
from .append_file import AppendFile
from .sink import log, set_aside

Record = dict[str, Any]
"""`time` (milliseconds, ever growing), `step`, and one of `metrics`, `hparams`, `file`, `end`."""

BATCH_BYTES: Final = 1 << 18


class Spool:
    """The spool of one run and one destination.

    Args:
        directory: Its directory, made at the first write.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.records = directory / "records.jsonl"
        self.files = directory / "files"
        self._file = AppendFile(self.records)
        self._time = 0
        self._step = 0
        self._pending: list[bytes] = []
        self._started = False

    # -- the process that logs -------------------------------------------------------------------

    def add(self, step: int, **content: Any) -> None:
        """Gather a record; `flush` writes it."""
        record = {"time": self._next_time(), "step": step, **content}
        self._pending.append(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        self._step = step

    def add_file(self, step: int, place: str, content: bytes) -> None:
        """Gather a file.

        Args:
            step: Environment frames so far.
            place: What it is called where it is sent to.
            content: What is in it.
        """
        self._start()
        stored = self.files / f"{self._next_time():015d}{Path(place).suffix}"
        self.files.mkdir(parents=True, exist_ok=True)
        write_atomically(stored, content, durable=False)
        self.add(step, file=place, stored=stored.name)

    def flush(self) -> bool:
        """Write the records gathered so far; whether there were any."""
        if not self._pending:
            return False
        self._start()
        pending, self._pending = self._pending, []
        self._file.write(b"".join(pending))
        return True

    def sync(self) -> None:
        """Flush to the disk."""
        self.flush()
        self._file.sync()

    def position(self) -> dict[str, Any]:
        """Where the spool ends: its length, its CRC-32, and time and step of its last record."""
        size, crc32 = self._file.size, self._file.crc32
        return {"bytes": size, "crc32": crc32, "time": self._time, "step": self._step}

    def rewind(self, position: Mapping[str, Any]) -> None:
        """Go back to a position; what follows it is taken back where it was sent to, too.

        If the spool does not begin with what was there, its records up to that time (or step, where
        the time is not known) are kept instead, and that is reported.
        """
        self._pending.clear()
        self._started = True
        size, last = position["bytes"], position["time"]
        if size is None or not self._file.rewind(size, position["crc32"]):
            known, value = ("step", position["step"]) if last is None else ("time", last)
            kept = [line for line, record in self._lines() if record[known] <= value]
            self.directory.mkdir(parents=True, exist_ok=True)
            self._file.replace(b"".join(kept))
            last = json.loads(kept[-1])["time"] if kept else 0
            log.warning(
                "%s is not what the checkpoint knew: continuing after its %d records up to step "
                "%d. What is not in it any more, and was not sent, is lost.",
                self.records,
                len(kept),
                position["step"],
            )
        self._time, self._step = last, position["step"]
        for file in self.files.glob("*"):
            if int(file.stem) > last:
                file.unlink(missing_ok=True)
        if self.directory.exists():
            self._note_rewind(self._file.size, last)

    def key(self) -> str | None:
        """The key of a log that was forgotten, and is repeated: see `forget_spools`."""
        return self.target().get("key") if self._is_empty() else None

    def write_target(self, target: Mapping[str, Any]) -> None:
        """Write where everything is to be sent; what was taken back stays known."""
        self.directory.mkdir(parents=True, exist_ok=True)
        void = {key: value for key, value in self.target().items() if key in _VOID}
        _write(self.directory / "target.json", {**target, **void})

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        self._file.close()

    def forget(self) -> None:
        """Drop, in a forked process, what the parent has gathered and writes itself."""
        self._pending.clear()

    # -- the process that sends ------------------------------------------------------------------

    def read(self, start: int) -> tuple[list[Record], int]:
        """Read whole records from a position on, up to `BATCH_BYTES` of them, but at least one.

        Returns:
            The records, and the position behind them.
        """
        with suppress(FileNotFoundError), self.records.open("rb") as file:
            file.seek(start)
            data = file.read(BATCH_BYTES)
            if b"\n" not in data:
                data += file.readline()
            data = data[: data.rfind(b"\n") + 1]
            return [record for _, record in _decode(data.splitlines(True))], start + len(data)
        return [], start

    def count(self, start: int = 0) -> int:
        """How many whole records there are from a position on."""
        number = 0
        with suppress(FileNotFoundError), self.records.open("rb") as file:
            file.seek(start)
            while chunk := file.read(1 << 20):
                number += chunk.count(b"\n")
        return number

    def unsent(self) -> int:
        """How many whole records have not been sent."""
        target, sent = self.target(), self.sent()
        if sent.get("uri") != target.get("uri"):
            return self.count()
        position = int(sent["bytes"])
        if sent["rewinds"] != target.get("rewinds", 0):
            position = min(position, target["kept_bytes"])
        return self.count(position)

    def target(self) -> dict[str, Any]:
        """What `write_target` wrote; empty if nothing."""
        return _read(self.directory / "target.json")

    def sent(self) -> dict[str, Any]:
        """What `write_sent` wrote; empty if nothing."""
        return _read(self.directory / "sent.json")

    def write_sent(self, sent: Mapping[str, Any]) -> None:
        """Write how far the records were sent, and whatever else the sender has to remember."""
        _write(self.directory / "sent.json", sent)

    @contextmanager
    def sending(self) -> Iterator[bool]:
        """Whether no other process sends these records; if so, none will while the block runs."""
        import fcntl

        self.directory.mkdir(parents=True, exist_ok=True)
        fd = open_to_lock(self.directory / ".lock")
        try:
            free = True
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:  # a file system without locks keeps nobody from it
                free = not isinstance(error, BlockingIOError)
            yield free
        finally:
            os.close(fd)

    # -- how -------------------------------------------------------------------------------------

    def _next_time(self) -> int:
        # Ever growing, so that a time names one record, on the server too.
        self._time = max(int(time.time() * 1000), self._time + 1)
        return self._time

    def _start(self) -> None:
        if not self._started:
            self._started = True
            if self._is_empty():
                return
            told = [self.directory / name for name in ("target.json", "sent.json")]
            earlier = [self.records, self.files, *told]
            set_aside([path for path in earlier if path.exists()])

    def _is_empty(self) -> bool:
        return not self.records.exists() or not self.records.stat().st_size

    def _note_rewind(self, size: int, last: int) -> None:
        target, sent = self.target(), self.sent()
        rewinds = target.get("rewinds", 0)
        if rewinds != sent.get("rewinds", 0):  # an earlier one has not been served yet
            size, last = min(size, target["kept_bytes"]), min(last, target["kept_time"])
        void = {"rewinds": rewinds + 1, "kept_bytes": size, "kept_time": last}
        _write(self.directory / "target.json", {**target, **void})

    def _lines(self) -> Iterator[tuple[bytes, Record]]:
        with suppress(FileNotFoundError), self.records.open("rb") as file:
            yield from _decode(file)

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return self.__dict__


_VOID: Final = ("rewinds", "kept_bytes", "kept_time")


def forget_spools(run: Path) -> None:
    """Have whatever a run has sent taken back, and what it has not sent forgotten."""
    for target in run.glob("spool/*/target.json"):
        Spool(target.parent).rewind({"bytes": 0, "crc32": 0, "time": 0, "step": 0})


def _decode(lines: Iterable[bytes]) -> Iterator[tuple[bytes, Record]]:
    """The whole records among lines; what a disk has damaged is left out."""
    for line in lines:
        if line.endswith(b"\n"):
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield line, record


def _read(path: Path) -> dict[str, Any]:
    with suppress(FileNotFoundError, ValueError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(content), durable=False)
