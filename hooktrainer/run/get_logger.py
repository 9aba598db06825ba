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
from ..log.logger import Logger
from ..log.sink import BackgroundSink, Sink, check_kinds, log, make_sinks
from ..store.lock import is_locked_here
from ..store.provenance import new_run_id
from ..store.run_dir import RunDir

_SECONDS: Final = 1.0  # between two updates of run.json


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
    logger that is given a state by `load_state_dict`, as `Trainer.load_state_dict` does, continues
    the logs of the run that saved it.

    A run's logs lie in one directory: `metrics.csv`, `tensorboard/`, `wandb/` and `mlflow.json`.
    MLflow and W&B are sent what the logger `csv` writes, so they bring it. The runs of a folder
    share `mlflow.db` and `mlflow_artifacts/` in that folder. Each destination is written by a
    thread of its own.

    Args:
        logger_type: `csv`, `tensorboard`, `mlflow`, `wandb` or `prometheus`, or a sequence of
            these. None or empty for no logger.
        logger_name: The directory of the logs; the run's directory is `experiment_name` in it. Or a
            `RunDir`, which is the run's directory itself.
        experiment_name: Name of the run. With a `RunDir`, name of the experiment: MLflow's
            experiment and W&B's project.
        mlflow_kwargs: Further arguments of `MLflowSink`: `tracking_uri`, `artifact_location`,
            `tags`, `run_id`, `experiment`, `run_name`.
        wandb_kwargs: Further arguments of `WandbSink` and `wandb.init`: `offline`, `id`, `project`,
            `entity`, `group`, `tags`, `settings`, …

    Returns:
        The logger, or `None` if there are no kinds.

    Raises:
        ConfigError: An unknown `logger_type`.
        MissingPackageError: The package of `mlflow` or `wandb` is not installed.
    """
    kinds = [logger_type] if isinstance(logger_type, str) else list(logger_type or ())
    kinds = [kind for kind in kinds if kind]
    if not kinds:
        return None
    check_kinds(kinds)
    make = functools.partial(
        make_sinks, kinds, mlflow=mlflow_kwargs or {}, wandb=wandb_kwargs or {}
    )
    if isinstance(logger_name, RunDir):
        path, name = logger_name.path.absolute(), experiment_name
        store = path.parents[path.parent.name == name]
        return RunLogger(functools.partial(make, experiment=name, store=store), name, logger_name)
    store = Path(logger_name)
    make = functools.partial(make, experiment=store.absolute().name or "runs", store=store)
    return RunLogger(make, experiment_name, root=store)


class RunLogger(Logger):
    """A logger whose state includes the id of the run that it logs.

    Without a run directory the run is the logger's own. Its directory is ``<root>/<name>``, or if
    another run has that, ``<name>_2``, and so on; the logger keeps its ``run.json``. The directory
    is chosen at the first use: by a position that is loaded, or by the first value. A configuration
    waits for either. An error of the disk is reported once, and does not end the program.

    Args:
        make_sinks: Makes the sinks in a directory for a run id.
        name: Name of the experiment or run.
        run: The run's directory.
        root: Directory of a run of the logger's own.
    """

    def __init__(
        self,
        make_sinks: Callable[..., Mapping[str, Sink]],
        name: str,
        run: RunDir | None = None,
        *,
        root: Path = Path(),
    ) -> None:
        super().__init__({}, exp_name=name, log_dir=str(root / name))
        self._make_sinks = make_sinks
        self._root = root
        self._run: RunDir | None = None
        self._record: _Record | None = None
        self._waiting: tuple[Any, ...] | None = None  # a configuration
        self._begun = time.time()
        if run is not None:
            self._open(run)

    def close(
        self, status: str = "finished", *, step: int | None = None, reason: str | None = None
    ) -> None:
        """Write everything, close every sink, and record in the run's directory how it ended."""
        if self._waiting is not None:
            self._begin()
        super().close(status, step=step, reason=reason)
        if self._record is not None:
            self._record.write(status, step, reason)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of every sink, and the run's id."""
        run = self._begin()
        return super().state_dict() | {"run_id": run.run_id}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where a checkpoint left off, in the logs of its run.

        If those are not here, or something was logged to others before, that is reported: the
        values are logged from here on.
        """
        waiting, self._waiting = self._waiting, None  # it comes after what is loaded
        run_id = state_dict.get("run_id")
        run = self._begin(run_id)
        # A directory that was only named has had no id yet.
        if run_id == run.run_id or (run_id is None and self._record is None):
            super().load_state_dict(state_dict)
        else:
            self._counts = dict(state_dict["counts"])
            log.warning(
                "The state that was loaded is of run %s, whose logs are not those in %s: logging "
                "begins here, as run %s.",
                run_id or "unknown",
                run.path,
                run.run_id,
            )
        if waiting is not None:
            self._write("hparams", *waiting)

    def _write(self, kind: str, *args: Any) -> None:
        if kind == "hparams" and self._run is None:
            self._waiting = args
            return
        if self._run is None or self._waiting is not None:
            self._begin()
        super()._write(kind, *args)
        if self._record is not None and kind == "scalars":
            self._record.note(*args)
        elif self._record is not None and kind == "hparams":
            self._record.attempt(lambda run: run.write_config(*args))

    def _begin(self, run_id: str | None = None) -> RunDir:
        """Choose the run's directory at the first use, that of the run with this id if it exists.

        Then write the configuration that waits for it.
        """
        if self._run is None:
            wished = path = self._root / self.exp_name
            others = self._root.glob(f"{glob.escape(self.exp_name)}_*")
            known = [path, *sorted(others)] if run_id is not None else []
            if found := [one for one in known if RunDir(one).run_id == run_id]:
                path = found[0]
            else:
                with contextlib.suppress(OSError):  # reported when it cannot be written to
                    path = _claim(wished)
                if path != wished:
                    log.warning("%s holds another run: this one is %s.", wished, path)
            run = RunDir(path, run_id=RunDir(path).run_id or new_run_id())
            self._record = _Record(run, self.exp_name, self._begun)
            weakref.finalize(self, self._record.leave)
            self._open(run)
        assert self._run is not None
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._write("hparams", *waiting)
        return self._run

    def _open(self, run: RunDir) -> None:
        self._run, self.log_dir = run, str(run.path)
        sinks = self._make_sinks(run.path, run_id=run.run_id)
        self.sinks = {name: BackgroundSink(sink) for name, sink in sinks.items()}


def _claim(wished: Path) -> Path:
    """Make a directory for a run, numbered if another has it; of two at once, one gets it."""
    wished.parent.mkdir(parents=True, exist_ok=True)
    numbered = (wished.with_name(f"{wished.name}_{number}") for number in itertools.count(2))
    for path in itertools.chain([wished], numbered):
        run = RunDir(path)
        if is_locked_here(run.checkpoints):  # by this program, for its checkpoints
            break
        if path.exists() and (not path.is_dir() or run.holds_run):
            continue
        with contextlib.suppress(FileExistsError):
            path.mkdir(exist_ok=True)
            os.close(os.open(run.run_file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
            break
    return path


class _Record:
    """Keeps the ``run.json`` of a logger's own run."""

    def __init__(self, run: RunDir, experiment: str, begun: float) -> None:
        self._run = run
        self._step = 0
        self._metrics: dict[str, float] = {}
        self._begun = begun
        self._status = "running"
        self._has_failed = False
        self._pid = os.getpid()
        self._next = time.monotonic() + _SECONDS
        self.attempt(lambda run: run.begin(experiment=experiment))
        with contextlib.suppress(OSError, ConfigError):
            self._begun -= run.read().get("seconds", 0.0)

    def note(self, values: Mapping[str, float], step: int) -> None:
        """Keep the step and the last metrics; write them once a second."""
        self._step = max(self._step, step)
        self._metrics.update(values)
        if self._status != "running" or time.monotonic() >= self._next:
            self.write("running")

    def write(self, status: str, step: int | None = None, reason: str | None = None) -> None:
        """Write how the run stands, or how it ended, at how many frames, and why."""
        self._status = status
        self._step = max(self._step, step or 0)
        self._next = time.monotonic() + _SECONDS
        fields = {
            "status": status,
            "reason": reason,
            "frames": self._step,
            "optim_steps": int(self._metrics.get("train/optim_steps", 0)),
            "seconds": round(max(0.0, time.time() - self._begun), 3),
            "metrics": self._metrics,
        }
        self.attempt(lambda run: run.update(**fields))

    def leave(self) -> None:
        """End the run of an unclosed logger as its program ended; a fork leaves it alone."""
        if self._status == "running" and os.getpid() == self._pid:
            error = getattr(sys, "last_value", None)  # an uncaught exception
            reason = error and f"{type(error).__name__}: {error}".rstrip(": ")
            self.write("finished" if error is None else "failed", reason=reason)

    def attempt(self, write: Callable[[RunDir], None]) -> None:
        """Write to the run's directory; report the first failure, and end nothing."""
        try:
            write(self._run)
        except (OSError, ConfigError) as error:
            if not self._has_failed:
                self._has_failed = True
                log.error("%s cannot be kept up to date: %s", self._run.run_file, error)
