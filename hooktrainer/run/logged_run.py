"""The run that a logger logs: one that others keep, or one that the logger begins by itself."""

from __future__ import annotations

import glob
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..log.sink import log
from ..store.alive import is_locked_here
from ..store.identity import RUN_FILE, new_run_id
from ..store.run_dir import RunDir

_SECONDS = 1.0
"""How often `run.json` is brought up to date."""


class KeptRun:
    """A run that others begin and keep, as a `LoggedRun` (see `hooktrainer.log.run_logger`).

    Args:
        run: Its directory.

    Attributes:
        path: Its directory; until it is settled which run it is, the one that was asked for.
    """

    is_settled: bool = True
    """Whether it is known which run it is."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self.path = run.path

    @property
    def run_id(self) -> str | None:
        """The run's id; ``None`` if it has not begun."""
        return self._run.run_id

    def begin(self) -> None:
        """Settle it: it is a new run."""

    def resume(self, run_id: str | None) -> bool:
        """Settle it: it is the run with this id. Whether that is so, as far as it is known."""
        own = self.run_id
        return own is None or run_id in (None, own)

    def note_config(self, config: Mapping[str, Any]) -> None:
        """Keep the options of the run."""

    def note(self, step: int, values: Mapping[str, float]) -> None:
        """Keep how far the run is, and its last metrics."""

    def end(self, status: str, step: int | None = None, reason: str | None = None) -> None:
        """Keep how the run ended, at how many frames, and why."""

    def leave(self) -> None:
        """End the run of a logger that nobody closed."""


class OwnRun(KeptRun):
    """A run that is nothing but what a logger logs; the logger keeps its ``run.json``.

    It has the directory ``<root>/<name>``; where another run is, ``<name>_2``, and so on. What the
    disk refuses is reported once, and does not end the program.

    Args:
        root: Directory of runs.
        name: Name of the run.
    """

    def __init__(self, root: Path, name: str) -> None:
        super().__init__(RunDir(root / name))
        self.is_settled = False
        self._root, self._name = root, name
        self._step = 0
        self._metrics: dict[str, float] = {}
        self._begun = time.time()
        self._next = 0.0
        self._status = "running"
        self._reason: str | None = None
        self._failed = False
        self._pid = os.getpid()

    @property
    def run_id(self) -> str | None:
        """The run's id, once it has begun."""
        return self._run.run_id if self.is_settled else None

    def begin(self) -> None:
        """Take the first directory that holds no other run."""
        if self.is_settled:
            return
        for path in self._names():
            try:
                taken = not _claim(path)
            except OSError as error:
                self._report(error)
                taken = False
            if not taken:
                break
        self._settle(path)
        if path != self._root / self._name:
            log.warning("%s holds another run: this one is %s.", self._root / self._name, path)

    def resume(self, run_id: str | None) -> bool:
        """Go on in the directory of the run with this id, whichever number is behind its name."""
        if not self.is_settled:
            path = None if run_id is None else self._find(run_id)
            if path is None:
                self.begin()
                return False
            self._settle(path, run_id)
        return self.run_id == run_id

    def note_config(self, config: Mapping[str, Any]) -> None:
        """Write ``config.yaml``."""
        self._attempt(lambda: self._run.write_config(config))

    def note(self, step: int, values: Mapping[str, float]) -> None:
        """Write how far the run is, about once a second."""
        self._step = max(self._step, step)
        self._metrics.update(values)
        if self._status != "running" or time.monotonic() >= self._next:
            self._status, self._reason = "running", None
            self._write()

    def end(self, status: str, step: int | None = None, reason: str | None = None) -> None:
        """Write how the run ended, at how many frames, and why."""
        if self.is_settled:
            self._status, self._reason = status, reason
            self._step = max(self._step, step or 0)
            self._write()

    def leave(self) -> None:
        """End the run as its program ended; one that is only forked leaves it alone."""
        if self.is_settled and self._status == "running" and os.getpid() == self._pid:
            error = getattr(sys, "last_value", None)  # an exception that nobody caught
            if error is None:
                self.end("finished")
            else:
                self.end("failed", reason=f"{type(error).__name__}: {error}".rstrip(": "))

    def _names(self) -> Iterator[Path]:
        yield self._root / self._name
        number = 1
        while number := number + 1:
            yield self._root / f"{self._name}_{number}"

    def _find(self, run_id: str) -> Path | None:
        wished = self._root / self._name
        others = self._root.glob(f"{glob.escape(self._name)}_*")
        places = [path for path in (wished, *sorted(others)) if (path / RUN_FILE).is_file()]
        found = (path for path in places if RunDir(path).run_id == run_id)
        torn = (path for path in places if _is_torn(RunDir(path)))
        return next(found, None) or next(torn, None)

    def _settle(self, path: Path, run_id: str | None = None) -> None:
        self.path = path
        self._run = RunDir(path, run_id=run_id or RunDir(path).run_id or new_run_id())
        self.is_settled = True
        self._attempt(lambda: self._run.begin(experiment=self._name))
        self._attempt(self._go_on_counting)
        self._next = time.monotonic() + _SECONDS

    def _go_on_counting(self) -> None:
        self._begun -= self._run.read().get("seconds", 0.0)

    def _write(self) -> None:
        self._next = time.monotonic() + _SECONDS
        fields = {
            "status": self._status,
            "reason": self._reason,
            "frames": self._step,
            "optim_steps": int(self._metrics.get("train/optim_steps", 0)),
            "seconds": round(max(0.0, time.time() - self._begun), 3),
            "metrics": self._metrics,
        }
        self._attempt(lambda: self._run.update(**fields))

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (OSError, ConfigError) as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            log.error("%s cannot be kept up to date: %s", self.path / RUN_FILE, error)


def _claim(path: Path) -> bool:
    """Make a directory this run's, unless another run has it; of two at once, one gets it."""
    run = RunDir(path)
    if is_locked_here(run.checkpoints):  # by this program, for its checkpoints
        return True
    if path.exists() and (not path.is_dir() or run.holds_run):
        return False
    path.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(run.run_file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except FileExistsError:
        return False
    return True


def _is_torn(run: RunDir) -> bool:
    """Whether the power failed while its ``run.json`` was written, and nothing says its id."""
    try:
        run.read()
    except ConfigError:
        return run.run_id is None
    return False
