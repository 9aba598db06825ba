"""`Control`: the requests to stop, save and log."""

from __future__ import annotations

import signal
from time import monotonic
from typing import Literal

from ..errors import place_of

Stop = Literal["stopped", "solved", "pruned", "finished"]
"""The status of a run after a stop request."""
Request = Literal["save", "log"]


class Control:
    """Requests of hooks and signals, which the trainer serves at the end of the batch.

    Attributes:
        requests: The requests to save and log.
        asked: The control that holds new requests; another one while they have to wait.
        signal: The signal that requested the stop.
        deadline: End of its grace period by `time.monotonic`; ``None`` without a signal.
    """

    def __init__(self) -> None:
        self.status = "running"
        self.is_leaving = False
        self.deadline: float | None = None
        self.stop_reason: str | None = None
        self._stop_status: Stop = "stopped"
        self.signal: int | None = None
        self.requests: set[Request] = set()
        self.asked = self

    def request_stop(self, reason: str, status: Stop = "stopped") -> None:
        """Request a stop; the first request is kept."""
        if self.asked.stop_reason is None:
            self.asked.stop_reason, self.asked._stop_status = reason, status

    def request(self, what: Request) -> None:
        """Request a checkpoint, or the end of the log window, at the end of the batch."""
        self.asked.requests.add(what)

    def take(self, what: Request) -> bool:
        """Return whether it was requested, and clear the request."""
        requested = what in self.requests
        self.requests.discard(what)
        return requested

    def receive(self, number: int, grace: float) -> None:
        """Request a stop because a signal arrived."""
        self.asked.signal = number
        self.deadline = monotonic() + grace
        self.request_stop(signal.Signals(number).name)

    def end(self, error: BaseException | None = None) -> None:
        """Set the final status."""
        if error is not None:
            self.status = "failed" if isinstance(error, Exception) else "interrupted"
            self.stop_reason = f"{type(error).__name__}: {error}".rstrip(": ")
            if isinstance(error, SystemExit) and not isinstance(error.code, str):
                self.stop_reason += f", raised {place_of(error)}"
        elif self.signal is not None:
            self.status = "interrupted"
        else:
            self.status = "finished" if self.stop_reason is None else self._stop_status
