"""Making the sinks of a run by their names."""

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


def make_sinks(
    kinds: Sequence[str], place: LogPlace, kwargs: Mapping[str, Mapping[str, Any]]
) -> dict[str, Sink]:
    """Make the sinks of a run, CSV first: MLflow and W&B are sent what it writes.

    Args:
        kinds: Their names; see `check_kinds`. Those that need the CSV files bring that sink.
        place: Where they write.
        kwargs: Further arguments of some, by name.
    """
    if any(_sink(kind).needs for kind in kinds) or "csv" in kinds:
        kinds = ["csv", *(kind for kind in kinds if kind != "csv")]
    return {kind: _sink(kind).at(place, **kwargs.get(kind, {})) for kind in kinds}


DEFAULT_LOGGERS: Final = ("csv", "tensorboard")
"""What a run that is kept logs to."""


def import_sinks(kinds: Sequence[str]) -> None:
    """Import what sinks of these names import when a run begins."""
    for kind in kinds:
        for module in _sink(kind).imports:
            importlib.import_module(module)


_SINKS: Final[Mapping[str, str]] = {
    "csv": "csv:CSVSink",
    "tensorboard": "tensorboard:TensorBoardSink",
    "mlflow": "mlflow:MLflowSink",
    "wandb": "wandb:WandbSink",
}
"""Sinks by name: the file and the class, imported when it is asked for."""


def _sink(kind: str) -> type[Sink]:
    found: type[Sink] = resolve_name(f"{__package__}.{_SINKS[kind]}")
    return found


def _unknown(kind: str) -> str:
    return f"unknown logger {kind!r}.{did_you_mean(kind, _SINKS)} There are: {', '.join(_SINKS)}."


def _need(kind: str) -> None:
    package = _sink(kind).needs
    if package is not None and importlib.util.find_spec(package) is None:
        raise MissingPackageError(
            f"logger {kind!r} needs a package that is not installed: "
            f"pip install 'hooktrainer[{kind}]'",
            name=package,
        )
