"""`get_logger`: the logs of a run, by the names of where they go."""

from __future__ import annotations

import contextlib
import functools
import glob
import itertools
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from ..log.background import BackgroundSink
from ..log.factory import check_kinds, make_sinks
from ..log.logger import Logger
from ..log.sink import Event, HParams, LogPlace, Scalars, Sink, log
from ..store.lock import is_locked_here
from ..store.provenance import RUN_FILE, new_run_id
from ..store.run_dir import RunDir


def get_logger(
    logger_type: str | Sequence[str] | None,
    logger_name: str | Path | RunDir,
    experiment_name: str,
    *,
    mlflow_kwargs: Mapping[str, Any] | None = None,
    wandb_kwargs: Mapping[str, Any] | None = None,
) -> Logger | None:
    """Make a logger, or several at once, for one run.

    With a directory and a name, the logs are a run of their own, with an id and a `run.json`: it
    appears in `hooktrainer runs`. It begins with the first value that is logged, in
    `<logger_name>/<experiment_name>`; where another run is, in `<experiment_name>_2`, and so on. A
    logger that is given a state by `load_state_dict`, as `Trainer.load_state_dict` does, goes on in
    the logs of the run that saved it.

    A run's logs lie in one directory: `metrics.csv`, `tensorboard/`, `wandb/` and `mlflow.json`.
    MLflow and W&B are sent what the logger `csv` writes, so they bring it. The runs of a folder
    share `mlflow.db` and `mlflow_artifacts/` in that folder. Each destination is written by a
    thread of its own.

    Args:
        logger_type: `csv`, `tensorboard`, `mlflow` or `wandb`, or a sequence of these. None or
            empty for no logger.
        logger_name: The directory of the logs; the run's directory is `experiment_name` in it. Or a
            `RunDir`, which is the run's directory itself.
        experiment_name: Name of the run. With a `RunDir`, name of the experiment: MLflow's
            experiment and W&B's project.
        mlflow_kwargs: Further arguments of `MLflowSink`: `tracking_uri`, `artifact_location`,
            `tags`, `run_id`, `experiment`, `run_name`.
        wandb_kwargs: Further arguments of `WandbSink` and `wandb.init`: `offline`, `id`, `project`,
            `entity`, `group`, `tags`, `settings`, …

    Returns:
        The logger, or `None` if none is asked for.

    Raises:
        ConfigError: An unknown or repeated `logger_type`.
        MissingPackageError: The package behind `mlflow` or `wandb` is not installed.
    """
    kinds = [logger_type] if isinstance(logger_type, str) else list(logger_type or ())
    kinds = [kind for kind in kinds if kind]
    if not kinds:
        return None
    if isinstance(logger_name, RunDir):
        path = logger_name.path.absolute()
        run = LoggedRun(logger_name)
        store, experiment = path.parents[path.parent.name == experiment_name], experiment_name
    else:
        store = Path(logger_name)
        run = _OwnRun(store, experiment_name)
        experiment = store.absolute().name or "runs"
    kwargs = {"mlflow": dict(mlflow_kwargs or {}), "wandb": dict(wandb_kwargs or {})}
    check_kinds(kinds)

    make = functools.partial(_sinks, kinds, kwargs, experiment, store)
    return RunLogger(run, make, exp_name=experiment_name)


def _sinks(
    kinds: Sequence[str],
    kwargs: Mapping[str, Mapping[str, Any]],
    experiment: str,
    store: Path,
    run: LoggedRun,
) -> dict[str, Sink]:
    return make_sinks(kinds, LogPlace(run.path, experiment, store, run.run_id), kwargs)


_SECONDS: Final = 1.0  # between two updates of run.json


class LoggedRun:
    """The run that a `RunLogger` logs; others begin it and keep its ``run.json``.

    Attributes:
        is_settled: Whether it is known which run it is.
    """

    is_settled = True

    def __init__(self, run: RunDir) -> None:
        self._run = run

    @property
    def path(self) -> Path:
        """Its directory; the one that was asked for until it is settled which run it is."""
        return self._run.path

    @property
    def run_id(self) -> str | None:
        """The run's id; ``None`` if it has not begun."""
        return self._run.run_id

    def begin(self) -> None:
        """Settle it: it is a new run."""

    def resume(self, run_id: str | None) -> bool:
        """Settle it: it is the run with this id. Returns whether that is so, as far as known."""
        return self.run_id is None or run_id in (None, self.run_id)

    def note_config(self, config: Mapping[str, Any]) -> None:
        """Keep the options of the run."""

    def note(self, step: int, values: Mapping[str, float]) -> None:
        """Keep how far the run is, and its last metrics."""

    def end(self, status: str, step: int | None = None, reason: str | None = None) -> None:
        """Keep how the run ended, at how many frames, and why."""

    def leave(self) -> None:
        """End the run of a logger that nobody closed."""


class _OwnRun(LoggedRun):
    """A run that is nothing but what a logger logs; the logger keeps its ``run.json``.

    It has the directory ``<root>/<name>``; where another run is, ``<name>_2``, and so on. What the
    disk refuses is reported once, and does not end the program.
    """

    is_settled = False

    def __init__(self, root: Path, name: str) -> None:
        super().__init__(RunDir(root / name))
        self._root, self._name = root, name
        self._step = 0
        self._metrics: dict[str, float] = {}
        self._begun = time.time()
        self._next = 0.0
        self._status = "running"
        self._failed = False
        self._pid = os.getpid()

    @property
    def run_id(self) -> str | None:
        return self._run.run_id if self.is_settled else None

    def begin(self) -> None:
        """Take the first directory that holds no other run."""
        if self.is_settled:
            return
        wished = path = self._root / self._name
        for number in itertools.count(2):
            try:
                if _claim(path):
                    break
            except OSError as error:
                self._report(error)
                break
            path = self._root / f"{self._name}_{number}"
        self._settle(path)
        if path != wished:
            log.warning("%s holds another run: this one is %s.", wished, path)

    def resume(self, run_id: str | None) -> bool:
        """Continue in the directory of the run with this id, whatever number its name has."""
        if not self.is_settled and run_id is not None:
            others = sorted(self._root.glob(f"{glob.escape(self._name)}_*"))
            for path in (self._root / self._name, *others):
                if (path / RUN_FILE).is_file() and RunDir(path).run_id == run_id:
                    self._settle(path)
                    break
        self.begin()
        return self.run_id == run_id

    def note_config(self, config: Mapping[str, Any]) -> None:
        self._attempt(lambda: self._run.write_config(config))

    def note(self, step: int, values: Mapping[str, float]) -> None:
        self._step = max(self._step, step)
        self._metrics.update(values)
        if self._status != "running" or time.monotonic() >= self._next:
            self._write("running")

    def end(self, status: str, step: int | None = None, reason: str | None = None) -> None:
        if self.is_settled:
            self._step = max(self._step, step or 0)
            self._write(status, reason)

    def leave(self) -> None:
        """End the run as its program ended; a fork of the program leaves it alone."""
        if self._status == "running" and os.getpid() == self._pid:
            error = getattr(sys, "last_value", None)  # an exception that nobody caught
            if error is None:
                self.end("finished")
            else:
                self.end("failed", reason=f"{type(error).__name__}: {error}".rstrip(": "))

    def _settle(self, path: Path) -> None:
        self._run = RunDir(path, run_id=RunDir(path).run_id or new_run_id())
        self.is_settled = True
        self._attempt(lambda: self._run.begin(experiment=self._name))
        with contextlib.suppress(OSError, ConfigError):
            self._begun -= self._run.read().get("seconds", 0.0)
        self._next = time.monotonic() + _SECONDS

    def _write(self, status: str, reason: str | None = None) -> None:
        self._status = status
        self._next = time.monotonic() + _SECONDS
        fields = {
            "status": status,
            "reason": reason,
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


class RunLogger(Logger):
    """A logger whose state includes the id of the run that it logs.

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
