"""Requests to stop, save or log that all ranks serve at the same batch."""

from __future__ import annotations

from ...loop.control import Control, Stop
from .ranks import Ranks


class RankControl(Control):
    """A `Control` whose requests take effect when the ranks have agreed on them.

    What a hook or a signal asks for on one rank waits until the ranks meet at the end of a batch;
    from then on it holds for all. A request that comes later waits for the next batch, so that no
    rank stops while another goes on.

    Args:
        control: The requests made so far, and from now on those that have not been agreed on.
        ranks: The ranks.
    """

    def __init__(self, control: Control, ranks: Ranks) -> None:
        super().__init__()
        self.status = control.status
        self._own = control
        self._ranks = ranks

    def agree(self, place: str) -> None:
        """Meet the other ranks; what any of them asked for now holds for all.

        Args:
            place: Where the ranks are.
        """
        own, reason = self._own, self._own.stop_reason
        asked = [reason is not None, own.take_save_request(), own.take_log_request()]
        rows = self._ranks.meet(place, [*map(int, asked), own.signal or 0])
        stops, saves, logs, signals = zip(*rows, strict=True)
        self._save |= any(saves)
        self._log |= any(logs)
        self._signal = max(signals) or None
        if any(stops) and self.stop_reason is None:
            self._take(self._ranks.broadcast(place, own.stop, stops.index(1)))

    def _take(self, stop: tuple[str | None, Stop, str | None]) -> None:
        self._stop_reason, self._stop_status, self._stopped_by = stop

    def request_stop(
        self, reason: str | None = None, status: Stop = "stopped", by: str | None = None
    ) -> None:
        """Ask all ranks to stop. The first request is kept."""
        self._own.request_stop(reason, status, by)

    def end(self, error: BaseException | None = None) -> None:
        """Set the status; what was asked for since the ranks last met, all of them asked for."""
        if self._stop_reason is None and self._own.signal is None:
            self._take(self._own.stop)
        super().end(error)

    def withdraw_stop(self, reason: str | None) -> None:
        """Go back to an earlier ``stop_reason``, of this rank and of all."""
        self._own.withdraw_stop(reason)
        super().withdraw_stop(reason)

    def request_save(self) -> None:
        """Ask all ranks to save."""
        self._own.request_save()

    def request_log(self) -> None:
        """Ask all ranks to close the log window."""
        self._own.request_log()

    def receive(self, number: int, grace: float) -> None:
        """Stop all ranks because a signal arrived at this one."""
        self._own.receive(number, grace)

    @property
    def deadline(self) -> float | None:
        """When the grace of a signal that arrived at this rank is over."""
        return self._own.deadline
