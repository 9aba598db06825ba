"""`get_logger` and `generate_exp_name`."""

from __future__ import annotations

import functools
import importlib.util
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..base.words import did_you_mean, printable
from ..errors import ConfigError, MissingPackageError
from .logger import Logger
from .run_logger import RunLogger
from .sink import Sink

if TYPE_CHECKING:
    from ..run.logged_run import LoggedRun
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
    from ..run import logged_run  # which imports this package
    from ..store.run_dir import RunDir

    kinds = [logger_type] if isinstance(logger_type, str) else list(logger_type or ())
    kinds = [kind for kind in kinds if kind]
    if not kinds:
        return None
    if isinstance(logger_name, RunDir):
        path = logger_name.path.absolute()
        run = logged_run.LoggedRun(logger_name)
        store, experiment = path.parents[path.parent.name == experiment_name], experiment_name
    else:
        store = Path(logger_name)
        run = logged_run.OwnRun(store, experiment_name)
        experiment = store.absolute().name or "runs"
    kwargs = {"mlflow": dict(mlflow_kwargs or {}), "wandb": dict(wandb_kwargs or {})}
    check_kinds(kinds)
    make = functools.partial(_make_sinks, kinds, kwargs, experiment, store)
    return RunLogger(run, make, exp_name=experiment_name)


def check_kinds(kinds: Sequence[str]) -> None:
    """Refuse what `get_logger` would refuse, before anything is made or imported.

    Raises:
        ConfigError: An unknown or repeated name.
        MissingPackageError: The package behind `mlflow` or `wandb` is not installed.
    """
    for number, kind in enumerate(kinds):
        if kind not in _SINKS:
            raise ConfigError(_unknown(kind))
        if kind in kinds[:number]:
            raise ConfigError(f"logger {kind!r} is given twice")
        _need(kind)


def generate_exp_name(model_name: str, experiment_name: str) -> str:
    """Make a name that no other run has: model, experiment, 8 random hex digits, date and time.

    >>> generate_exp_name("ppo", "cartpole")  # doctest: +SKIP
    'ppo_cartpole_1f0c9a2e_25_03_14-15_09_26'
    """
    now = datetime.now().strftime("%y_%m_%d-%H_%M_%S")
    return f"{model_name}_{experiment_name}_{uuid.uuid4().hex[:8]}_{now}"


def _make_sinks(
    kinds: Sequence[str],
    kwargs: Mapping[str, Mapping[str, Any]],
    experiment: str,
    store: Path,
    run: LoggedRun,
) -> dict[str, Sink]:
    place = _Place(run.path, experiment, run.path.absolute().name, store, run.run_id)
    return {kind: _SINKS[kind](place, **kwargs.get(kind, {})) for kind in kinds}


class _Place:
    """Where a run's logs go, what they are called, and where runs have things in common."""

    def __init__(
        self, directory: Path, experiment: str, run: str, store: Path, run_id: str | None
    ) -> None:
        self.directory = directory
        self.experiment = printable(experiment)
        self.run = printable(run)
        self.store = store
        self.run_id = run_id


def _csv(place: _Place) -> Sink:
    from .csv import CSVSink

    return CSVSink(place.directory / "metrics.csv")


def _tensorboard(place: _Place) -> Sink:
    from .tensorboard import TensorBoardSink

    return TensorBoardSink(place.directory / "tensorboard", place.run)


def _mlflow(place: _Place, **kwargs: Any) -> Sink:
    from .mlflow import MLflowSink

    names = {"experiment": place.experiment, "run_name": place.run, "store": place.store}
    tags = {} if place.run_id is None else {"hooktrainer.run_id": place.run_id}
    return MLflowSink(
        place.directory, **{**names, **kwargs, "tags": {**tags, **(kwargs.get("tags") or {})}}
    )


def _wandb(place: _Place, **kwargs: Any) -> Sink:
    from .wandb import WandbSink

    names: dict[str, Any] = {"project": place.experiment, "run_name": place.run}
    if place.run_id is not None:
        names["config"] = {"hooktrainer.run_id": place.run_id, **(kwargs.pop("config", None) or {})}
    return WandbSink(place.directory, **{**names, **kwargs})


_SINKS: Final[Mapping[str, Callable[..., Sink]]] = {
    "csv": _csv,
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}


def _unknown(kind: str) -> str:
    return f"unknown logger {kind!r}.{did_you_mean(kind, _SINKS)} There are: {', '.join(_SINKS)}."


def _need(kind: str) -> None:
    if importlib.util.find_spec(kind) is None:
        raise MissingPackageError(
            f"logger {kind!r} needs a package that is not installed: "
            f"pip install 'hooktrainer[{kind}]'",
            name=kind,
        )
