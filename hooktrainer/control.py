"""What hooks ask of the run: to stop, to save."""

from __future__ import annotations


class Control:
    """Requests that hooks make and the trainer serves at the end of the batch.

    Attributes:
        stop_reason: Why the run is to stop; ``None`` while it is not.
        save_requested: Whether a checkpoint is to be written at the end of the batch.
        log_requested: Whether the log window is to be closed at the end of the batch.
    """

    def __init__(self) -> None:
        self.stop_reason: str | None = None
        self.save_requested = False
        self.log_requested = False

    def request_stop(self, reason: str | None) -> None:
        """Ask the run to stop. The first reason given is kept."""
        if self.stop_reason is None:
            self.stop_reason = reason or "requested"

    def take_save_request(self) -> bool:
        """Whether a save was requested since the last call."""
        requested, self.save_requested = self.save_requested, False
        return requested

    def take_log_request(self) -> bool:
        """Whether the log window was to be closed early, since the last call."""
        requested, self.log_requested = self.log_requested, False
        return requested
