"""When and where the state of a trainer is saved."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..store.single_file import save_file
from .cadence import Every
from .progress import Progress

if TYPE_CHECKING:
    from ..store import CheckpointManager


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
