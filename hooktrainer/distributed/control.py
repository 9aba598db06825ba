"""Requests to stop, save or log that all ranks serve at the same batch."""

from __future__ import annotations

from ..control import Control
from .ranks import Ranks


class RankControl(Control):
    """A `Control` whose requests take effect when the ranks have agreed on them.

    What a hook or a signal asks for on one rank waits until the ranks meet at the end of a batch;
    from then on it holds for all. A request that comes later waits for the next batch, so that no
    rank stops while another goes on.

    Args:
        control: The requests made so far.
        ranks: The ranks.
    """

    def __init__(self, control: Control, ranks: Ranks) -> None:
        self._ranks = ranks
        self._asked_stop = control.stop_reason
        self._asked = {"save": control.save_requested, "log": control.log_requested}
        self._agreed = {"save": False, "log": False}
        self._stop_reason: str | None = None
        self._signal = control.signal
        self._agreed_signal: int | None = None
        self.status = control.status

    def agree(self, place: str) -> None:
        """Meet the other ranks; what any of them asked for now holds for all.

        Args:
            place: Where the ranks are.
        """
        stop = self._asked_stop is not None
        asked = [stop, self._asked["save"], self._asked["log"], self._signal or 0]
        rows = self._ranks.meet(place, [int(number) for number in asked])
        self._asked = {"save": False, "log": False}
        stops, saves, logs, signals = zip(*rows, strict=True)
        self._agreed["save"] |= any(saves)
        self._agreed["log"] |= any(logs)
        if any(signals):
            self._agreed_signal = max(signals)
        if any(stops) and self._stop_reason is None:
            source = stops.index(1)
            self._stop_reason = self._ranks.broadcast(place, self._asked_stop, source)

    def request_stop(self, reason: str | None) -> None:
        """Ask all ranks to stop. The first reason given is kept."""
        if self._asked_stop is None:
            self._asked_stop = reason or "requested"

    @property
    def stop_reason(self) -> str | None:
        """Why all ranks are to stop, or how the run ended."""
        return self._stop_reason

    @stop_reason.setter
    def stop_reason(self, reason: str | None) -> None:
        self._stop_reason = reason
        self._asked_stop = reason

    @property
    def save_requested(self) -> bool:
        """Whether all ranks are to save at the end of this batch."""
        return self._agreed["save"]

    @save_requested.setter
    def save_requested(self, requested: bool) -> None:
        (self._asked if requested else self._agreed)["save"] = requested

    @property
    def log_requested(self) -> bool:
        """Whether all ranks are to close the log window at the end of this batch."""
        return self._agreed["log"]

    @log_requested.setter
    def log_requested(self, requested: bool) -> None:
        (self._asked if requested else self._agreed)["log"] = requested

    @property
    def signal(self) -> int | None:
        """The signal that ends the run, on whichever rank it arrived."""
        return self._agreed_signal

    @signal.setter
    def signal(self, number: int | None) -> None:
        self._signal = number
