"""`get_logger`: the logs of a run, by the names of where they go."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..log.factory import check_kinds, make_sinks
from ..log.logger import Logger
from ..log.place import LogPlace
from ..log.run_logger import LoggedRun, RunLogger
from ..log.sink import Sink
from ..store.run_dir import RunDir
from .logged_run import KeptRun, OwnRun


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

    A run's logs lie in one directory: `metrics.csv`, `tensorboard/`, `wandb/`, and `spool/` with
    what goes to an MLflow server. The runs of a folder share `mlflow.db` and `mlflow_artifacts/` in
    that folder. Each destination is written by a thread of its own.

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
        run: LoggedRun = KeptRun(logger_name)
        store, experiment = path.parents[path.parent.name == experiment_name], experiment_name
    else:
        store = Path(logger_name)
        run = OwnRun(store, experiment_name)
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
