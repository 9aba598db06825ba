"""Configurations as plain values."""

from __future__ import annotations

import enum
from argparse import Namespace
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch
import yaml
from tensordict import TensorDict

from hooktrainer.base.plain import flatten_config, to_plain, to_yaml


class Kind(enum.Enum):
    MEAN = 1


@dataclass
class Optim:
    lr: float = 0.5
    betas: tuple[float, float] = (0.9, 0.99)


@dataclass
class Config:
    optim: Optim = field(default_factory=Optim)
    out: Path = Path("a/b")
    kind: Kind = Kind.MEAN
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    seed: np.int64 = field(default_factory=lambda: np.int64(3))
    scale: torch.Tensor = field(default_factory=lambda: torch.tensor([1.0, 2.0]))
    names: frozenset[str] = frozenset({"b", "a"})
    net: type = torch.nn.Tanh
    nothing: None = None


PLAIN = {
    "optim": {"lr": 0.5, "betas": [0.9, 0.99]},
    "out": "a/b",
    "kind": "MEAN",
    "device": "cpu",
    "dtype": "torch.float32",
    "seed": 3,
    "scale": [1.0, 2.0],
    "names": ["a", "b"],
    "net": "torch.nn.modules.activation.Tanh",
    "nothing": None,
}


def test_everything_becomes_plain_and_yaml_brings_it_back():
    assert to_plain(Config()) == PLAIN
    assert yaml.safe_load(to_yaml(to_plain(Config()))) == PLAIN


@pytest.mark.parametrize("kind", [dict, OrderedDict, MappingProxyType, lambda d: Namespace(**d)])
def test_mappings_and_objects_serve(kind):
    assert to_plain(kind({"a": 1, "b": kind({"c": 2})})) == {"a": 1, "b": {"c": 2}}


def test_keys_are_joined_with_dots():
    assert flatten_config({"a": {"b": {"c": 1}, "d": 2}, "e": {}}) == {
        "a.b.c": 1,
        "a.d": 2,
        "e": {},
    }


def test_many_numbers_are_named_by_what_they_hash_to():
    def plain(*numbers):
        data = TensorDict({"observation": torch.arange(1500).reshape(500, 3)}, batch_size=[500])
        data["next"] = TensorDict({"reward": torch.zeros(500)}, batch_size=[500])
        data["next", "reward"][: len(numbers)] = torch.tensor(numbers)
        weights = np.full((40, 30), 0.5)
        return to_plain({"data": data, "weights": weights, "half": torch.ones(2000).bfloat16()})

    config = plain(1.0)
    assert config["data"]["next"]["reward"] == [1.0] + [0.0] * 499
    assert config["data"]["observation"].startswith("int64[500, 3] sha256:")
    assert config["weights"].startswith("float64[40, 30] sha256:")
    assert config["half"].startswith("float32[2000] sha256:")
    assert plain(1.0) == config != plain(2.0)
    other = to_plain({"weights": np.full((40, 30), 0.25)})
    assert other["weights"] != config["weights"]
