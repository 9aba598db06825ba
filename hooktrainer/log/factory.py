"""Creating sinks by name."""

from __future__ import annotations

import importlib
import importlib.util
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

from ..base.words import did_you_mean, printable
from ..errors import ConfigError, MissingPackageError
from .sink import Sink

DEFAULT_LOGGERS: Final = ("csv", "tensorboard")
"""Loggers of a run with a directory."""

_SINKS: Final[Mapping[str, str]] = {
    "csv": "csv:CSVSink",
    "tensorboard": "tensorboard:TensorBoardSink",
    "mlflow": "mlflow:MLflowSink",
    "wandb": "wandb:WandbSink",
}
"""Module and class of each sink, imported on demand."""


def check_kinds(kinds: Sequence[str]) -> None:
    """Check logger names before anything is created or imported.

    Raises:
        ConfigError: If a name is unknown or repeated.
        MissingPackageError: If the package of `mlflow` or `wandb` is not installed.
    """
    for number, kind in enumerate(kinds):
        if kind not in _SINKS:
            hint = did_you_mean(kind, _SINKS)
            raise ConfigError(f"unknown logger {kind!r}.{hint} There are: {', '.join(_SINKS)}.")
        if kind in kinds[:number]:
            raise ConfigError(f"logger {kind!r} is given twice")
        package = sink_class(kind).needs
        if package is not None and importlib.util.find_spec(package) is None:
            raise MissingPackageError(
                f"logger {kind!r} needs a package that is not installed: "
                f"pip install 'hooktrainer[{kind}]'",
                name=package,
            )


def generate_exp_name(model_name: str, experiment_name: str) -> str:
    """Return a unique name: model, experiment, 8 random hex digits, date and time.

    >>> generate_exp_name("ppo", "cartpole")  # doctest: +SKIP
    'ppo_cartpole_1f0c9a2e_25_03_14-15_09_26'
    """
    now = datetime.now().strftime("%y_%m_%d-%H_%M_%S")
    return f"{model_name}_{experiment_name}_{uuid.uuid4().hex[:8]}_{now}"


def make_sinks(
    kinds: Sequence[str],
    directory: Path,
    *,
    experiment: str,
    store: Path,
    run_id: str | None,
    mlflow: Mapping[str, Any],
    wandb: Mapping[str, Any],
) -> dict[str, Sink]:
    """Create the sinks of a run; `csv` first, since MLflow and W&B send its files.

    Args:
        kinds: Names of the sinks.
        directory: The run's directory.
        experiment: Name of the experiment.
        store: Directory shared by the runs of a folder.
        run_id: The run's id.
        mlflow: Further arguments of `MLflowSink`.
        wandb: Further arguments of `WandbSink`.
    """
    own = {} if run_id is None else {"hooktrainer.run_id": run_id}
    name, experiment = printable(directory.absolute().name), printable(experiment)
    place: dict[str, Any] = {"directory": directory}
    named = place | {"run_name": name}
    arguments: dict[str, dict[str, Any]] = {
        "csv": {"path": directory / "metrics.csv"},
        "tensorboard": {"directory": directory / "tensorboard", "run_name": name},
        "mlflow": named | {"experiment": experiment, "store": store, **mlflow},
        "wandb": named | {"project": experiment, **wandb},
    }
    arguments["mlflow"]["tags"] = own | dict(mlflow.get("tags") or {})
    arguments["wandb"]["config"] = own | dict(wandb.get("config") or {})
    if "csv" in kinds or any(sink_class(kind).needs for kind in kinds):
        kinds = ["csv", *(kind for kind in kinds if kind != "csv")]
    return {kind: sink_class(kind)(**arguments.get(kind, place)) for kind in kinds}


def import_sinks(kinds: Sequence[str]) -> None:
    """Import the modules that sinks of these names need at the start of a run."""
    for kind in kinds:
        for module in sink_class(kind).imports:
            importlib.import_module(module)


def sink_class(kind: str) -> type[Any]:
    """Return the class of a sink."""
    found: type[Sink] = resolve_name(f"{__package__}.{_SINKS[kind]}")
    return found
