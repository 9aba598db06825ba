"""Making the sinks of a run by their names."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..base.words import did_you_mean, printable
from ..errors import ConfigError, MissingPackageError
from .sink import Sink

if TYPE_CHECKING:
    pass


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
    """Make the sinks of a run.

    Args:
        kinds: Their names; see `check_kinds`.
        place: Where they write.
        kwargs: Further arguments of some, by name.
    """
    return {kind: _SINKS[kind](place, **kwargs.get(kind, {})) for kind in kinds}


class LogPlace:
    """Where a run's logs go, what they are called, and where runs have things in common.

    Args:
        directory: The run's directory.
        experiment: Name of the experiment.
        store: Directory of what the runs of a folder share.
        run_id: The run's id; ``None`` if it has not begun.
    """

    def __init__(self, directory: Path, experiment: str, store: Path, run_id: str | None) -> None:
        self.directory = directory
        self.experiment = printable(experiment)
        self.run = printable(directory.absolute().name)
        self.store = store
        self.run_id = run_id


def _csv(place: LogPlace) -> Sink:
    from .csv import CSVSink

    return CSVSink(place.directory / "metrics.csv")


def _tensorboard(place: LogPlace) -> Sink:
    from .tensorboard import TensorBoardSink

    return TensorBoardSink(place.directory / "tensorboard", place.run)


def _mlflow(place: LogPlace, **kwargs: Any) -> Sink:
    from .mlflow import MLflowSink

    names = {"experiment": place.experiment, "run_name": place.run, "store": place.store}
    tags = {} if place.run_id is None else {"hooktrainer.run_id": place.run_id}
    return MLflowSink(
        place.directory, **{**names, **kwargs, "tags": {**tags, **(kwargs.get("tags") or {})}}
    )


def _wandb(place: LogPlace, **kwargs: Any) -> Sink:
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
