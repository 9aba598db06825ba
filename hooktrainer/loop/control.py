"""What is asked of the run, to stop, to save and to log, and how the run stands."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ConfigError, place_of
from ..store.single_file import save_file
from .cadence import Every, Progress

if TYPE_CHECKING:
    from ..store import CheckpointManager

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


# -- When and where the state of a trainer is saved.


class Saver:
    """Saves states to a file, to a run's checkpoints, or both.

    Args:
        file: A file that every save replaces, in the back end that ``CKPT_BACKEND`` names now.
        checkpoints: The manager of a run's checkpoints.
        cadences: When to save; any of them.

    Raises:
        CheckpointError: If there is no such back end.
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
        """A file that every save replaces."""
        return self._file

    @file.setter
    def file(self, file: str | Path | None) -> None:
        self._file = None if file is None else Path(file)
        if self._file is not None:
            if self._file.is_dir():
                raise ConfigError(
                    f"save_trainer_file={str(file)!r} is a directory; name a file, such as "
                    f"{str(self._file / 'trainer.pt')!r}."
                )
            from ..store import backends  # which not every trainer needs

            self._backend = backends.backend_name()
            backends.get_backend(self._backend)  # refused now, and not at the first save

    @property
    def active(self) -> bool:
        """Whether there is anywhere to save to."""
        return self.file is not None or self.checkpoints is not None

    def start(self, unsaved: str | None) -> None:
        """Say what a save will not hold, and make what was loaded the run's latest checkpoint."""
        if self.active and unsaved:
            warnings.warn(unsaved, stacklevel=4)
        if self.checkpoints is not None:
            self.checkpoints.go_on()

    def due(self, progress: Progress) -> bool:
        """Whether a cadence is due; all of them are asked, so that each keeps its phase."""
        due = [every.due(progress) for every in self.cadences.values()]
        return any(due)

    def save(self, state: dict[str, Any], progress: Progress, metrics: Mapping[str, float]) -> None:
        """Save ``state``; ``metrics`` are the latest values, by which the best is chosen."""
        if self.file is not None:
            save_file(self.file, state, self._backend)
        if self.checkpoints is not None:
            self.checkpoints.save(
                state,
                frames=progress.frames,
                optim_steps=progress.optim_steps,
                metrics=metrics,
            )

    def save_aside(self, state: dict[str, Any]) -> None:
        """Save a state that was left in the middle of a batch, for a look at what went wrong.

        It goes to ``exception.pt`` beside the checkpoints or the file, never in their place: a run
        resumed from it would not be the run that was never interrupted.
        """
        if self.checkpoints is not None:
            save_file(self.checkpoints.directory.parent / "exception.pt", state)
        elif self.file is not None:
            save_file(self.file.with_name("exception.pt"), state)

    def check(self) -> None:
        """Raise what a save in the background failed with."""
        if self.checkpoints is not None:
            self.checkpoints.check()

    def wait(self) -> None:
        """Wait until the last save is on the disk."""
        if self.checkpoints is not None:
            self.checkpoints.wait()

    def close(self) -> None:
        """Wait for the last save and let go of the run's checkpoints."""
        if self.checkpoints is not None:
            self.checkpoints.close()

    def __getstate__(self) -> dict[str, Any]:
        # The lock on the directory stays with this process.
        return self.__dict__ | {"checkpoints": None}
