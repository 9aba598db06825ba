"""Targets: data sets and samplers."""

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
from hooktrainer.replay import PrioritizedSampler


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


def _spoil_array(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return mutate_bytes(data, rng)
    end = 10 + int.from_bytes(data[8:10], "little")
    header = data[10:end].decode("latin1")
    shapes = (
        "(20,)",
        "(20, 3)",
        "(-1,)",
        "(99999999999,)",
        "(2**40,)",
        "()",
        "(4611686018427387904, 4)",
    )
    types = ("'<f4'", "'|O'", "'<f8'", "[('a', '<f4')]", "'|V4'", "'<U3'", "'|S0'", "('<f4', (2,))")
    if rng.random() < 0.5:
        start = header.find("'shape': ") + 9
        header = header[:start] + rng.choice(shapes) + header[header.find(")", start) + 1 :]
    else:
        start = header.find("'descr': ") + 9
        header = header[:start] + rng.choice(types) + header[header.find(",", start) :]
    coded = header.encode("latin1")
    return data[:8] + len(coded).to_bytes(2, "little") + coded + data[end:]


def _open_dataset(place: Path) -> Any:
    data = load_dataset(place / "data")
    return [data.transitions, data.returns, data.env, data.description, repr(data)]


def _sampler() -> Files:
    with tempfile.TemporaryDirectory() as place:
        made = PrioritizedSampler(50, 0.7, 0.5)
        made.extend(range(20))
        made.update_priority(torch.arange(20), torch.rand(20))
        made.dumps(place)
        return read(Path(place))


def _spoil_sampler(files: Files, rng: random.Random) -> None:
    if rng.random() < 0.1:
        spoil_place(files, rng)
    elif rng.random() < 0.6:
        files["sampler.json"] = mutate_json(files["sampler.json"], rng)  # type: ignore[arg-type]
    else:
        files["weights.npy"] = _spoil_array(files["weights.npy"], rng)  # type: ignore[arg-type]


def _open_sampler(place: Path) -> Any:
    made = PrioritizedSampler(50, 0.7, 0.5)
    made.loads(place)
    return made.state_dict()


def targets() -> list[Target]:
    """The targets here."""
    or_none = (ConfigError, FileNotFoundError)
    return [
        Target("data set", _dataset, _spoil_dataset, _open_dataset, or_none),
        Target("sampler", _sampler, _spoil_sampler, _open_sampler, or_none),
    ]
