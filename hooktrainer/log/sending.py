"""Sending a spool to its server: in order, each record once, again and again until it works.

`python -m hooktrainer.log.sending SPOOL` does it beside a run, `hooktrainer sync RUN` after it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..base.child_program import end_with_parent
from ..errors import ConfigError
from .destination import Destination, RunGoneError
from .mlflow import address
from .mlflow_run import MLflowRun
from .remote_sink import ADDRESS, public
from .sink import log
from .spool import Record, Spool

_FIRST_PAUSE: Final = 1.0  # seconds between two attempts, at first and at most
_LONGEST_PAUSE: Final = 30.0
_POLL: Final = 0.5


class Sender:
    """Sends what a spool holds to a destination.

    Args:
        spool: The spool.
        make: Makes the destination of its memory, without connecting to it.
        uri: Where that is, for the file that says how far it was sent. What was sent elsewhere does
            not count.
    """

    def __init__(
        self, spool: Spool, make: Callable[[dict[str, Any]], Destination], uri: str
    ) -> None:
        self.spool = spool
        self.uri = uri
        self._make = make
        sent = spool.sent()
        if sent.get("uri") != uri:
            sent = {}
        self._bytes: int = sent.get("bytes", 0)
        self._rewinds: int = sent.get("rewinds", 0)
        self._memory: dict[str, Any] = sent.get("memory", {})
        self._destination: Destination | None = None

    def send_some(self) -> int:
        """Send the next records; returns how many there were.

        Raises:
            Exception: What the destination raised. Another call tries again.
        """
        void = self.spool.target()
        rewound = self._rewinds != (rewinds := void.get("rewinds", 0))
        start = min(self._bytes, void["kept_bytes"]) if rewound else self._bytes
        records, end = self.spool.read(start)
        if not records:
            return 0
        try:
            destination = self._open()
            if rewound:
                destination.take_back(void["kept_time"])
                self._bytes, self._rewinds = start, rewinds
            destination.send(records, self.spool.files)
        except RunGoneError:
            self._destination, self._memory = None, {"lost": True}
            self._bytes, self._rewinds = 0, rewinds
            raise
        self._memory = dict(destination.memory)
        self._bytes = end
        self._note()
        for record in records:
            if "stored" in record:
                (self.spool.files / Path(record["stored"]).name).unlink(missing_ok=True)
        return len(records)

    def end(self) -> bool:
        """Have the destination call a run interrupted that has not said how it ended.

        Returns:
            Whether it has not.
        """
        last: Record | None = None
        records, position = self.spool.read(0)
        while records:
            last = records[-1]
            records, position = self.spool.read(position)
        if last is None or "end" in last:
            return False
        end = {"time": last["time"], "step": last["step"], "end": "interrupted"}
        self._open().send([end], self.spool.files)
        return True

    def _open(self) -> Destination:
        if self._destination is None:
            destination = self._make(dict(self._memory))
            destination.open(self.spool.read(0)[0][0])
            self._destination = destination
        return self._destination

    def _note(self) -> None:
        self.spool.write_sent(
            {
                "uri": self.uri,
                "bytes": self._bytes,
                "rewinds": self._rewinds,
                "memory": self._memory,
            }
        )


def sender_of(spool: Spool, uri: str | None = None) -> Sender:
    """Make the sender of a spool.

    Args:
        spool: The spool.
        uri: Where to send it; by default where its run was to.

    Raises:
        ConfigError: It is for something that is not known here.
    """
    target = spool.target()
    if target["kind"] != "mlflow":
        raise ConfigError(f"{spool.directory}: there is no kind of server {target['kind']!r}.")
    to = uri or address(target)
    return Sender(spool, lambda memory: MLflowRun(target, to, memory), public(to))


def reason(error: BaseException) -> str:
    """Why something failed, in one short line: what was raised first, which names the cause."""
    first, seen = error, {id(error)}
    while (cause := first.__cause__ or first.__context__) is not None and id(cause) not in seen:
        first = cause
        seen.add(id(cause))
    text = getattr(first, "strerror", None) or str(first).strip() or type(first).__name__
    line = text.splitlines()[0]
    return line if len(line) <= 200 else f"{line[:200]} …"


def send_until_told(sender: Sender, finish: threading.Event, say: Callable[..., None]) -> bool:
    """Send records as they come, until `finish` is set and nothing is left, or nothing helps.

    Args:
        sender: What sends.
        finish: Set when there will be no more records.
        say: Told `ok` and `text` when the destination fails, and when it is back.

    Returns:
        Whether all records were sent.
    """
    is_failing, pause = False, _FIRST_PAUSE
    while True:
        was_last = finish.is_set()
        try:
            number = sender.send_some()
        except Exception as error:
            if not is_failing:
                say(
                    ok=False,
                    text=f"{sender.uri} cannot be written to ({reason(error)}). What is logged is "
                    f"kept in {sender.spool.directory} and sent when it can be.",
                )
            is_failing = True
            if was_last:
                return False
            finish.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            if is_failing and number:
                say(ok=True, text=f"{sender.uri} can be written to again.")
                is_failing, pause = False, _FIRST_PAUSE
            if not number:
                if was_last:
                    return True
                finish.wait(_POLL)


def bound_requests() -> str:
    """Have this process try a request once and wait ten seconds, unless the user says otherwise.

    Returns:
        How many seconds it waits.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    return os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")


def main() -> None:
    """Send the spool that is named until standard input says that there will be no more."""
    # What is printed by anything else must not get among the words for the parent.
    words = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    finish = threading.Event()
    end_with_parent(told=finish.set)
    bound_requests()
    spool = Spool(Path(sys.argv[1]))

    def say(*, ok: bool | None, text: str) -> None:
        print(json.dumps({"ok": ok, "text": text}), file=words, flush=True)

    log.addHandler(_Words(say))
    while True:
        with spool.sending() as free:
            if free:
                sender = sender_of(spool, os.environ.get(ADDRESS))
                done = send_until_told(sender, finish, say)
                break
        if finish.wait(0.2):
            done = False
            break
    os._exit(0 if done else 1)  # whatever threads the client has begun


class _Words(logging.Handler):
    """Passes warnings on to the process that trains."""

    def __init__(self, say: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(ok=None, text=record.getMessage())


if __name__ == "__main__":
    main()
