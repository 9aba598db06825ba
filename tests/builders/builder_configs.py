"""A small configuration, and a network, for the tests of the builders."""

from __future__ import annotations

import dataclasses

from torch import nn
from torchrl.data import Categorical
from torchrl.modules import QValueActor

from hooktrainer import builders


@dataclasses.dataclass(kw_only=True)
class Config(
    builders.EnvConfig,
    builders.OffPolicyCollectorConfig,
    builders.LossConfig,
    builders.ReplayArgsConfig,
    builders.TrainerConfig,
):
    """All of them in one, as scripts have it."""


def config(**fields) -> Config:
    small = {
        "total_frames": 200,
        "frames_per_batch": 20,
        "init_random_frames": 0,
        "optim_steps_per_batch": 2,
        "batch_size": 8,
        "buffer_size": 100,
        "categorical_action_encoding": True,
        "max_frames_per_traj": 50,
    }
    return Config(**small | fields)


def value_net(key: str = "observation_vector") -> QValueActor:
    return QValueActor(nn.Linear(4, 2), in_keys=[key], spec=Categorical(2))
