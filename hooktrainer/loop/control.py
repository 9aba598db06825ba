"""What is asked of the run, to stop, to save and to log, and how the run stands."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Literal

from ..errors import place_of

Stop = Literal["stopped", "solved", "pruned"]
"""The status of a run that was asked to stop."""


class _BrokenOffError(BaseException):
    """Control flow, not an error: what was waited for will not come."""


class Control:
    """Requests that hooks and signals make and the trainer serves at the end of the batch.

    Attributes:
        status: How the run stands: running, or one of `hooktrainer.base.endings.ENDINGS`.
        is_leaving: Whether the last batch is done, and what is left is the end of the run.
    """

    def __init__(self) -> None:
        self.status = "running"
        self.is_leaving = False
        self._deadline: float | None = None
        self._stop_reason: str | None = None
        self._stop_status: Stop = "stopped"
        self._stopped_by: str | None = None
        self._signal: int | None = None
        self._save = False
        self._log = False
        self._breaks = False

    @property
    def stop_reason(self) -> str | None:
        """Why the run is to stop, or how it ended; ``None`` while it goes on."""
        return self._stop_reason

    @property
    def signal(self) -> int | None:
        """Number of the signal that asked the run to stop, if one did."""
        return self._signal

    @property
    def deadline(self) -> float | None:
        """When a signal's grace is over, by `time.monotonic`; ``None`` if there was none."""
        return self._deadline

    @property
    def stop(self) -> tuple[str | None, Stop, str | None]:
        """The reason to stop, the status that the run will have, and who asked for it."""
        return self._stop_reason, self._stop_status, self._stopped_by

    @property
    def stop_reason_in_full(self) -> str | None:
        """The reason to stop, and who gave it if that is known."""
        by = self._stopped_by
        return self._stop_reason if by is None else f"{self._stop_reason} (by {by})"

    def request_stop(
        self, reason: str | None = None, status: Stop = "stopped", by: str | None = None
    ) -> None:
        """Ask the run to stop. The first request is kept.

        Args:
            reason: Why.
            status: What the run's status will be.
            by: Who asks for it.
        """
        if self._stop_reason is None:
            self._stop_reason, self._stop_status = reason or "requested", status
            self._stopped_by = by

    def withdraw_stop(self, reason: str | None) -> None:
        """Go back to an earlier ``stop_reason``; whoever gave the present one was wrong."""
        if reason != self._stop_reason:
            self._stop_reason, self._stop_status, self._stopped_by = reason, "stopped", None

    def request_save(self) -> None:
        """Ask for a checkpoint at the end of the batch."""
        self._save = True

    def request_log(self) -> None:
        """Ask for the log window to be closed at the end of the batch."""
        self._log = True

    def receive(self, number: int, grace: float) -> None:
        """Stop because a signal arrived.

        Args:
            number: The signal's number.
            grace: Seconds until the process has to be gone.
        """
        self._signal = number
        self._deadline = monotonic() + grace
        self.request_stop(signal.Signals(number).name)

    def break_off(self) -> None:
        """Break off what `unless_signalled` is calling, if anything; for signal handlers."""
        if self._breaks:
            raise _BrokenOffError

    def unless_signalled(self, call: Callable[[], None]) -> None:
        """Call something, unless a signal was received; one that is received breaks it off.

        For what may wait for ever for processes that a signal has ended.
        """
        try:
            self._breaks = self.signal is None
            if self._breaks:
                call()
            self._breaks = False
        except _BrokenOffError:
            pass
        finally:
            self._breaks = False

    @contextmanager
    def without_collector(self) -> Iterator[None]:
        """In the block, a collector that fails after a signal is gone; what fails is left undone.

        A signal to the whole process group, as from a terminal or a cluster, ends the processes of
        a collector that does not shield them. The run has no more batch to collect, and ends with
        those it has.
        """
        try:
            yield
        except Exception as error:
            if self.signal is None:
                raise
            warnings.warn(
                f"{signal.Signals(self.signal).name} ended the collector's processes as well "
                f"({type(error).__name__}: {error}); the run ends with the last finished batch.",
                stacklevel=4,
            )

    def take_save_request(self) -> bool:
        """Whether a save was requested since the last call."""
        requested, self._save = self._save, False
        return requested

    def take_log_request(self) -> bool:
        """Whether the log window was to be closed early, since the last call."""
        requested, self._log = self._log, False
        return requested

    def end(self, error: BaseException | None = None) -> None:
        """Set the status to how the run ended.

        Args:
            error: What ended it, if it did not end by itself.
        """
        if error is not None:
            self._stopped_by = None
            self.status = "failed" if isinstance(error, Exception) else "interrupted"
            self._stop_reason = f"{type(error).__name__}: {error}".rstrip(": ")
            if isinstance(error, SystemExit) and not isinstance(error.code, str):
                self._stop_reason += f", raised {place_of(error)}"
        elif self.signal is not None:
            self.status = "interrupted"
        else:
            self.status = "finished" if self.stop_reason is None else self._stop_status
