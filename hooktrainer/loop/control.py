"""`Control`, the requests to stop, save and log, and `Saver`, which saves the trainer's state."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ConfigError, place_of
from ..store.single_file import save_file
from .cadence import Every, Progress

if TYPE_CHECKING:
    from ..store import CheckpointManager

Stop = Literal["stopped", "solved", "pruned"]
"""The status of a run after a stop request."""
Request = Literal["save", "log"]


class Control:
    """Requests of hooks and signals, which the trainer serves at the end of the batch."""

    def __init__(self) -> None:
        self.status = "running"
        self.is_leaving = False
        self._deadline: float | None = None
        self.stop_reason: str | None = None
        self._stop_status: Stop = "stopped"
        self.signal: int | None = None  # the one that requested the stop
        self._requests: set[Request] = set()

    @property
    def deadline(self) -> float | None:
        """End of a signal's grace period by `time.monotonic`; ``None`` without a signal."""
        return self._deadline

    @property
    def stop(self) -> tuple[str | None, Stop]:
        """The stop reason and the resulting status."""
        return self.stop_reason, self._stop_status

    def request_stop(self, reason: str, status: Stop = "stopped") -> None:
        """Request a stop; the first request is kept."""
        if self.stop_reason is None:
            self.stop_reason, self._stop_status = reason, status

    def request(self, what: Request) -> None:
        """Request a checkpoint, or the end of the log window, at the end of the batch."""
        self._requests.add(what)

    def take(self, what: Request) -> bool:
        """Return whether it was requested, and clear the request."""
        requested = what in self._requests
        self._requests.discard(what)
        return requested

    def receive(self, number: int, grace: float) -> None:
        """Request a stop because a signal arrived."""
        self.signal = number
        self._deadline = monotonic() + grace
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


# -- When and where the state of a trainer is saved.


class Saver:
    """Saves states to a file, to a run's checkpoints, or to both.

    Raises:
        CheckpointError: If the back end is unknown.
        ConfigError: If ``file`` is a directory.
    """

    def __init__(
        self,
        file: str | Path | None = None,
        checkpoints: CheckpointManager | None = None,
        cadences: Sequence[Every] = (),
    ) -> None:
        self._backend = "torch"  # until there is a file
        self.file = file
        self.checkpoints = checkpoints
        self.cadences = {
            f"save_{number}" if number > 1 else "save": every.copy()
            for number, every in enumerate(cadences, start=1)
        }

    @property
    def file(self) -> Path | None:
        """The file replaced by every save."""
        return self._file

    @file.setter
    def file(self, file: str | Path | None) -> None:
        self._file = None if file is None else Path(file)
        if self._file is not None:
            if self._file.is_dir():
                raise ConfigError(f"save_trainer_file={str(file)!r} is a directory; name a file.")
            from ..store import backends  # which not every trainer needs

            self._backend = backends.backend_name()
            backends.get_backend(self._backend)  # refused now, and not at the first save

    @property
    def active(self) -> bool:
        """Whether there is a file or a checkpoint manager."""
        return self.file is not None or self.checkpoints is not None

    def due(self, progress: Progress) -> bool:
        """Return whether a cadence is due; checks all, so that each keeps its phase."""
        due = [every.due(progress) for every in self.cadences.values()]
        return any(due)

    def save(self, state: dict[str, Any], progress: Progress, metrics: Mapping[str, float]) -> None:
        """Save ``state``; ``metrics`` are the latest values, used to rank checkpoints."""
        if self.file is not None:
            save_file(self.file, state, self._backend)
        if self.checkpoints is not None:
            frames, steps = progress.frames, progress.optim_steps
            self.checkpoints.save(state, frames=frames, optim_steps=steps, metrics=metrics)

    def save_aside(self, state: dict[str, Any]) -> None:
        """Save a state from the middle of a batch to ``exception.pt``, for debugging only."""
        if self.checkpoints is not None:
            save_file(self.checkpoints.directory.parent / "exception.pt", state)
        elif self.file is not None:
            save_file(self.file.with_name("exception.pt"), state)

    def __getstate__(self) -> dict[str, Any]:
        # The lock on the directory stays with this process.
        return self.__dict__ | {"checkpoints": None}
