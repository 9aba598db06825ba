"""What a server is to whoever sends it what a run logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from .spool import Record


class RunGoneError(Exception):
    """The server no longer has the run that was written to."""


class Destination(Protocol):
    """A server, as `sending.Sender` needs it. Whatever a method raises is tried again later.

    Attributes:
        memory: What it has to know to go on later, as plain values: saved with every success.
    """

    memory: dict[str, Any]

    def open(self, first: Record) -> None:
        """Find the run, or begin it; `first` is its first record.

        Raises:
            RunGoneError: It was there and is no longer.
        """

    def take_back(self, time: int) -> None:
        """Remove what was sent of later records, or see that it is not sent a second time."""

    def send(self, records: Sequence[Record], files: Path) -> None:
        """Send records. Some of them may have been sent before; they must not count twice."""
