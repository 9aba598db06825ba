"""Creating sinks by name."""

from __future__ import annotations

import importlib
import importlib.util
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from pkgutil import resolve_name
from typing import Any, Final

from ..base.words import did_you_mean
from ..errors import ConfigError, MissingPackageError
from .sink import LogPlace, Sink


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
        package = _sink(kind).needs
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
    kinds: Sequence[str], place: LogPlace, kwargs: Mapping[str, Mapping[str, Any]]
) -> dict[str, Sink]:
    """Create the sinks of a run; `csv` first, since MLflow and W&B send its files."""
    if any(_sink(kind).needs for kind in kinds) or "csv" in kinds:
        kinds = ["csv", *(kind for kind in kinds if kind != "csv")]
    return {kind: _sink(kind).at(place, **kwargs.get(kind, {})) for kind in kinds}


DEFAULT_LOGGERS: Final = ("csv", "tensorboard")
"""Loggers of a run with a directory."""


def import_sinks(kinds: Sequence[str]) -> None:
    """Import the modules that sinks of these names need at the start of a run."""
    for kind in kinds:
        for module in _sink(kind).imports:
            importlib.import_module(module)


_SINKS: Final[Mapping[str, str]] = {
    "csv": "csv:CSVSink",
    "tensorboard": "tensorboard:TensorBoardSink",
    "mlflow": "mlflow:MLflowSink",
    "wandb": "wandb:WandbSink",
}
"""Module and class of each sink, imported on demand."""


def _sink(kind: str) -> type[Sink]:
    found: type[Sink] = resolve_name(f"{__package__}.{_SINKS[kind]}")
    return found
