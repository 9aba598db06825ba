"""`Dataset`: transitions to train on offline, and the plain files they are kept in."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from tensordict import NestedKey, TensorDict, TensorDictBase

from ...base.untrusted import (
    MalformedError,
    check_fields,
    check_name,
    parse_json,
    read_file,
    refusing,
    shown,
)
from ...base.untrusted.array_file import read_array
from ...errors import ConfigError, NotFoundError, TakenError
from ...loop.metrics import Latest

_FORMAT: Final = "hooktrainer-dataset"
_VERSION: Final = 1
_ABOUT: Final = "dataset.json"


@dataclass(frozen=True)
class About:
    """The fields of ``dataset.json``; see `Dataset`."""

    format: str
    version: int
    env: str | None
    description: str
    transitions: int
    episodes: int
    return_mean: float | None
    return_std: float | None
    return_min: float | None
    return_max: float | None
    entries: Mapping[str, Mapping[str, Any]]
    returns: Sequence[float]


class Dataset:
    """Transitions, in the order of their trajectories, and what the whole episodes returned.

    On disk it is a directory without anything pickled::

        <dataset>/
          dataset.json            what is below, and what the episodes returned
          observation.npy         one NumPy file for each entry, transitions first
          action.npy
          next/observation.npy
          next/reward.npy
          next/terminated.npy
          next/truncated.npy

    ``dataset.json`` holds ``format`` (``"hooktrainer-dataset"``), ``version`` (1), ``env``,
    ``description``, ``transitions`` (their number), ``episodes`` (the number of whole ones),
    ``return_mean``, ``return_std``, ``return_min``, ``return_max`` (of those; ``null`` if there are
    none), ``returns`` (each of them) and ``entries`` (key to ``dtype`` and ``shape``).

    Args:
        transitions: ``[n]``, in TorchRL's layout: ``"observation"``, ``"action"`` and, under
            ``"next"``, ``"observation"``, ``"reward"``, ``"terminated"``, ``"truncated"``. A
            transition is followed by the next one unless it is terminated or truncated.
        returns: Sums of rewards of the whole episodes.
        env: Id of the environment.
        description: How the data came about, for people.

    Raises:
        ConfigError: If ``transitions`` does not have one dimension, or is empty.
    """

    def __init__(
        self,
        transitions: TensorDict,
        returns: Sequence[float] = (),
        env: str | None = None,
        description: str = "",
    ) -> None:
        if transitions.ndim != 1 or not len(transitions):
            raise ConfigError(
                f"a data set needs transitions of shape [n], n > 0, not {list(transitions.shape)}."
            )
        self.transitions = transitions
        self.returns = list(returns)
        self.env = env
        self.description = description

    def __len__(self) -> int:
        return len(self.transitions)

    def __repr__(self) -> str:
        what = f"{len(self)} transitions, {len(self.returns)} episodes"
        return f"Dataset({self.env}, {what}, mean return {self.mean_return:.1f})"

    @property
    def mean_return(self) -> float:
        """Mean return of the whole episodes; NaN if there are none."""
        return float(np.mean(self.returns)) if self.returns else float("nan")

    def log(self, batch: TensorDictBase | None = None) -> dict[str, Any]:
        """The metrics ``data/return`` and ``data/episodes``, to be registered at a log point.

        Beside ``eval/return`` they say what training has made of the data::

            trainer.register_op("post_steps_log", dataset.log, every=Every(optim_steps=1000))

        Args:
            batch: What a log point passes; not used.
        """
        out: dict[str, Any] = {"data/episodes": Latest(len(self.returns))}
        if self.returns:
            out["data/return"] = Latest(self.mean_return)
        return out

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the data set; it appears complete or not at all.

        Args:
            path: The directory to make.
            overwrite: Whether what is there is replaced, if it is a data set.

        Raises:
            TakenError: If something is there already.
        """
        path = Path(path)
        if path.exists() and not (overwrite and (path / _ABOUT).is_file()):
            raise TakenError(f"{path} exists already: remove it, or choose another place.")
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
        try:
            self._write(beside)
            if path.exists():
                shutil.rmtree(path)
            beside.rename(path)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        return path

    def _write(self, directory: Path) -> None:
        directory.mkdir()
        entries = {}
        for key, value in self.transitions.items(include_nested=True, leaves_only=True):
            name = key if isinstance(key, str) else "/".join(key)
            array = value.cpu().numpy()
            file = directory / f"{name}.npy"
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, array, allow_pickle=False)
            entries[name] = {"dtype": str(array.dtype), "shape": list(array.shape)}
        returns = [float(value) for value in self.returns]
        known = bool(returns)
        about = {
            "format": _FORMAT,
            "version": _VERSION,
            "env": self.env,
            "description": self.description,
            "transitions": len(self),
            "episodes": len(returns),
            "return_mean": self.mean_return if known else None,
            "return_std": float(np.std(returns)) if known else None,
            "return_min": min(returns) if known else None,
            "return_max": max(returns) if known else None,
            "entries": entries,
            "returns": returns,
        }
        (directory / _ABOUT).write_text(json.dumps(about, indent=1) + "\n")


def read_dataset(path: Path) -> Dataset:
    """Read a data set from the directory that `Dataset.save` wrote.

    Raises:
        NotFoundError: If there is none.
        ConfigError: If the files are not what ``dataset.json`` says.
    """
    if not (path / _ABOUT).is_file():
        raise NotFoundError(
            f"{path} holds no data set: there is no {_ABOUT}. RecordDataset writes one, as "
            "recipes/collect_pendulum.py shows; 'minari:<id>' names one of Minari's."
        )
    with refusing(path / _ABOUT, ConfigError):
        about = parse_json(read_file(path / _ABOUT, path), nan=True)
        if about.get("format") != _FORMAT or about.get("version") != _VERSION:
            raise MalformedError(
                f"it has the format {about.get('format')!r}, version {about.get('version')!r}; "
                f"this hooktrainer reads {_FORMAT!r}, version {_VERSION}"
            )
        check_fields(about, About)
        transitions = TensorDict(batch_size=[about["transitions"]])
        for name, expected in about["entries"].items():
            transitions.set(_key(check_name(name)), _read(path, name, expected))
        return Dataset(transitions, about["returns"], about["env"], about["description"])


def _read(directory: Path, name: str, expected: Mapping[str, Any]) -> torch.Tensor:
    file = directory / f"{name}.npy"
    try:
        array = read_array(file, directory)
    except (OSError, MalformedError) as error:
        raise ConfigError(f"the data set's file {file} cannot be read: {error}") from error
    found = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if found != expected:
        raise ConfigError(f"{file} holds {found}, but {_ABOUT} says {shown(expected)}.")
    return torch.from_numpy(array)


def _key(name: str) -> NestedKey:
    parts = tuple(name.split("/"))
    return parts if len(parts) > 1 else name
