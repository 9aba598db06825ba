"""Target: data sets."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import torch
from mutate import mutate_bytes, mutate_json
from target import Files, Target, read, spoil_place
from tensordict import TensorDict

from hooktrainer.collect.datasets import Dataset, load_dataset
from hooktrainer.errors import ConfigError


def _dataset() -> Files:
    steps = 20
    transitions = TensorDict(
        {
            "observation": torch.rand(steps, 3),
            "action": torch.arange(steps),
            "next": {
                "observation": torch.rand(steps, 3),
                "reward": torch.rand(steps, 1),
                "terminated": torch.zeros(steps, 1, dtype=torch.bool),
                "truncated": torch.zeros(steps, 1, dtype=torch.bool),
            },
        },
        [steps],
    )
    with tempfile.TemporaryDirectory() as place:
        Dataset(transitions, [1.0, 2.5], "Pendulum-v1", "made").save(Path(place) / "data")
        return read(Path(place))


def _spoil_dataset(files: Files, rng: random.Random) -> None:
    data = files["data"]
    if rng.random() < 0.1 or not isinstance(data, bytes):
        spoil_place(files, rng)
    elif rng.random() < 0.4:
        files["data"] = mutate_bytes(data, rng)
    else:
        end = 8 + int.from_bytes(data[:8], "little")
        header = mutate_json(data[8:end], rng)
        files["data"] = len(header).to_bytes(8, "little") + header + data[end:]


def _open_dataset(place: Path) -> Any:
    data = load_dataset(place / "data")
    return [data.transitions, data.returns, data.env, data.description, repr(data)]


def targets() -> list[Target]:
    """The targets here."""
    or_none = (ConfigError, FileNotFoundError)
    return [Target("data set", _dataset, _spoil_dataset, _open_dataset, or_none)]
