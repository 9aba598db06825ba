"""`RunLogger`: the logger of one run, which never mixes its logs with another's."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from .background import BackgroundSink
from .events import Event, HParams, Scalars
from .logger import Logger
from .sink import Sink, log


class LoggedRun(Protocol):
    """The run that a `RunLogger` logs: which one it is, and what the logger tells it.

    Attributes:
        path: Its directory; until it is settled which run it is, the one that was asked for.
    """

    path: Path

    @property
    def is_settled(self) -> bool:
        """Whether it is known which run it is."""

    @property
    def run_id(self) -> str | None:
        """The run's id; ``None`` if it has not begun."""

    def begin(self) -> None:
        """Settle it: it is a new run."""

    def resume(self, run_id: str | None) -> bool:
        """Settle it: it is the run with this id. Whether that is so, as far as it is known."""

    def note_config(self, config: Mapping[str, Any]) -> None:
        """Take note of the options of the run."""

    def note(self, step: int, values: Mapping[str, float]) -> None:
        """Take note of how far the run is, and of its last metrics."""

    def end(self, status: str, step: int | None = None, reason: str | None = None) -> None:
        """Take note of how the run ended, at how many frames, and why."""

    def leave(self) -> None:
        """End the run of a logger that nobody closed."""


class RunLogger(Logger):
    """A logger that knows which run it logs, and says so in its state.

    Where the run is the logger's own, its directory is settled at the first use: by a position that
    is loaded, or by the first value. A configuration waits for either.

    Args:
        run: The run.
        make_sinks: Makes the sinks in the run's directory, by name; called again when the run is
            settled.
        exp_name: Name of the experiment or run.
    """

    def __init__(
        self,
        run: LoggedRun,
        make_sinks: Callable[[LoggedRun], Mapping[str, Sink]],
        *,
        exp_name: str = "",
    ) -> None:
        self._background = {name: BackgroundSink(sink) for name, sink in make_sinks(run).items()}
        super().__init__(self._background, exp_name=exp_name, log_dir=str(run.path))
        self._run = run
        self._make_sinks = make_sinks
        self._waiting: HParams | None = None
        weakref.finalize(self, run.leave)

    def close(
        self, status: str = "finished", *, step: int | None = None, reason: str | None = None
    ) -> None:
        """Write everything, close every sink, and say in the run's directory how it ended."""
        if self._waiting is not None:
            self._begin()
        super().close(status, step=step, reason=reason)
        self._run.end(status, step, reason)

    def state_dict(self) -> dict[str, Any]:
        """Where every sink stands, and which run's logs these are."""
        self._begin()
        return super().state_dict() | {"run_id": self._run.run_id}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where a checkpoint left off, in the logs of the run that it is of.

        If those are not here, or something was logged to others before, that is reported: the
        values are logged from here on.
        """
        run_id, settled = state_dict.get("run_id"), self._run.is_settled
        there = self._run.resume(run_id)
        if not settled:
            self._move()
        if there:
            super().load_state_dict(state_dict)
        else:
            self._counts = dict(state_dict["counts"])
            log.warning(
                "The state that was loaded is of run %s, whose logs are not those in %s: logging "
                "begins here, as run %s.",
                run_id or "unknown",
                self._run.path,
                self._run.run_id,
            )
        self._begin()

    def _write(self, event: Event) -> None:
        if isinstance(event, HParams) and not self._run.is_settled:
            self._waiting = event
            return
        self._begin()
        super()._write(event)
        if isinstance(event, Scalars):
            self._run.note(event.step, event.values)
        elif isinstance(event, HParams):
            self._run.note_config(event.config)

    def _begin(self) -> None:
        """Settle which run it is, if need be, and write the configuration that waits for that."""
        if not self._run.is_settled:
            self._run.begin()
            self._move()
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._write(waiting)

    def _move(self) -> None:
        """Write to where the run is."""
        self.log_dir = str(self._run.path)
        for name, sink in self._make_sinks(self._run).items():
            self._background[name].replace(sink)
