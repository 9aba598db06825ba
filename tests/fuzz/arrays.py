"""Targets: data sets, samplers, and the states of environments."""

from __future__ import annotations

import io
import json
import random
import tempfile
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from mutate import mutate_bytes, mutate_json
from target import Files, Target, read, spoil_place
from tensordict import TensorDict

from hooktrainer.base.untrusted import MalformedError
from hooktrainer.collect.datasets import Dataset, load_dataset
from hooktrainer.collect.restore import dumps, loads
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
        return read(Path(place) / "data")


def _spoil_dataset(files: Files, rng: random.Random) -> None:
    kind = rng.randrange(10)
    if kind == 0:
        spoil_place(files, rng)
        return
    name = "dataset.json"
    if kind > 5:
        name = rng.choice([name for name in sorted(files) if name.endswith(".npy")])
    data = files[name]
    if not isinstance(data, bytes):
        return
    files[name] = mutate_json(data, rng) if name == "dataset.json" else _spoil_array(data, rng)
    if name != "dataset.json" and rng.random() < 0.7:  # what dataset.json says of it then
        about = json.loads(files["dataset.json"])  # type: ignore[arg-type]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                shape, dtype = _header(files[name])  # type: ignore[arg-type]
        except Exception:  # there is nothing to say
            return
        about["entries"][name.removesuffix(".npy")] = {"dtype": str(dtype), "shape": list(shape)}
        if rng.random() < 0.3 and shape:
            about["transitions"] = shape[0]
        files["dataset.json"] = json.dumps(about).encode()


def _header(data: bytes) -> tuple[Any, Any]:
    file = io.BytesIO(data)
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return shape, dtype


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
    data = load_dataset(place)
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


def _state() -> Any:
    whole = np.arange(12.0)
    return {
        "numbers": [1, 2.5, None, True, "text", float("inf"), (1, 2)],
        "array": whole,
        "view": whole[2:8].reshape(2, 3),
        "fortran": np.asfortranarray(np.ones((2, 3), np.float32)),
        "scalar": np.float32(2),
        "pcg": np.random.default_rng(0),
        "mt": np.random.Generator(np.random.MT19937(0)),
        "philox": np.random.Generator(np.random.Philox(0)),
        "moments": gym.wrappers.utils.RunningMeanStd(shape=(3,)),
    }


def _environment() -> Files:
    return {"state.json": dumps([_state()]).encode()}


def _spoil_environment(files: Files, rng: random.Random) -> None:
    files["state.json"] = mutate_json(files["state.json"], rng)  # type: ignore[arg-type]


def _open_environment(place: Path) -> Any:
    """Load it, and use what draws, where a position may be beyond the end."""
    try:
        found = loads((place / "state.json").read_text(errors="replace"), [_state()])
    except MalformedError as error:
        raise ConfigError(str(error)) from None
    drawn = [repr(x.random(700)) for x in _generators(found)]
    try:
        return [dumps(found), drawn]
    except RecursionError:  # writing takes more than reading
        return "nested deep"


def _generators(tree: Any) -> list[np.random.Generator]:
    stack, found = [tree], []
    while stack:
        node = stack.pop()
        if isinstance(node, np.random.Generator):
            found.append(node)
        elif isinstance(node, dict | list):
            stack += node.values() if isinstance(node, dict) else node
    return found


def targets() -> list[Target]:
    """The targets here."""
    or_none = (ConfigError, FileNotFoundError)
    return [
        Target("data set", _dataset, _spoil_dataset, _open_dataset),
        Target("sampler", _sampler, _spoil_sampler, _open_sampler, or_none),
        Target("environment", _environment, _spoil_environment, _open_environment),
    ]
