"""What hooks ask of the run: to stop, to save."""

from __future__ import annotations


class Control:
    """Requests that hooks make and the trainer serves at the end of the batch.

    Attributes:
        stop_reason: Why the run is to stop; ``None`` while it is not.
        save_requested: Whether a checkpoint is to be written at the end of the batch.
        log_requested: Whether the log window is to be closed at the end of the batch.
        status: How the run stands: running, finished, stopped, interrupted or failed.
        signal: Number of the signal that asked the run to stop, if one did.
    """

    def __init__(self) -> None:
        self.stop_reason: str | None = None
        self.save_requested = False
        self.log_requested = False
        self.signal: int | None = None
        self.status = "running"

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

    def end(self, error: BaseException | None = None) -> None:
        """Set the status to how the run ended.

        Args:
            error: What ended it, if it did not end by itself.
        """
        if error is not None:
            self.status = "failed" if isinstance(error, Exception) else "interrupted"
            self.stop_reason = f"{type(error).__name__}: {error}".rstrip(": ")
        elif self.signal is not None:
            self.status = "interrupted"
        else:
            self.status = "finished" if self.stop_reason is None else "stopped"
