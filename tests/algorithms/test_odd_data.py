"""Data sets of any observations and actions, and of types that batches do not have."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from any_env import AnyEnv
from gymnasium import spaces

from hooktrainer import VectorCollector, algorithms
from hooktrainer.data import Dataset, RecordDataset, load_dataset
from hooktrainer.errors import ConfigError
from hooktrainer.testing import tiny_trainer

SMALL = {"num_cells": (8,), "eval_episodes": 1, "progress_bar": False, "batch_size": 8}
ONLINE = {"num_envs": 2, "steps_per_batch": 10, "init_random_frames": 0}
VECTOR = spaces.Box(-1, 1, (3,))
BOX, CHOICE = spaces.Box(-2, 3, (2, 2)), spaces.Discrete(3, start=5)
IMAGE = spaces.Box(0, 255, (3, 36, 36), np.uint8)
DEEP = spaces.Dict(picture=spaces.Box(0, 255, (6, 6, 1), np.uint8), rest=spaces.Dict(x=VECTOR))


def recorded(env: Any, path: Any) -> Dataset:
    collector = VectorCollector(env, num_envs=2, frames_per_batch=20)
    trainer = tiny_trainer(collector=collector, total_frames=40, seed=0)
    RecordDataset(path).register(trainer)
    trainer.train()
    return load_dataset(path)


@pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")
@pytest.mark.parametrize(
    ("name", "observation", "action", "options"),
    [
        ("dqn", DEEP, CHOICE, ONLINE),
        ("sac", VECTOR, spaces.Dict(a=BOX, b=CHOICE), ONLINE),
        ("bc", VECTOR, BOX, {}),
        ("bc", VECTOR, BOX, {"deterministic_policy": True}),
        ("iql", VECTOR, BOX, {}),
        ("td3bc", VECTOR, spaces.Box(-1, 1, ()), {}),
        ("bc", DEEP, BOX, {}),
        ("bc", DEEP, spaces.Dict(a=BOX, b=CHOICE), {}),
        ("bc", VECTOR, spaces.Dict(a=spaces.Box(5, 6, (2,)), b=CHOICE), {}),  # which refuses others
        ("cql", DEEP, CHOICE, {}),
        ("cql", DEEP, BOX, {}),
        ("iql", DEEP, CHOICE, {}),
        ("iql", DEEP, BOX, {}),
        ("td3bc", DEEP, BOX, {}),
        ("bc", IMAGE, CHOICE, {"network": "nature"}),
        ("cql", IMAGE, CHOICE, {"network": "small"}),
    ],
)
def test_what_is_recorded_is_learned_from(name, observation, action, options, tmp_path):
    env = partial(AnyEnv, observation, action)
    dataset = recorded(env, tmp_path / "data")
    run = algorithms.get(name)(env=env, dataset=dataset, total_frames=40, **SMALL, **options)
    assert run.train().optim_count > 0


@pytest.mark.parametrize("name", ["bc", "cql", "iql"])
def test_what_a_mask_forbids_is_not_done_by_a_policy_from_data(name, tmp_path):
    env = partial(AnyEnv, VECTOR, spaces.Discrete(5), mask_size=5)  # which refuses it
    dataset = recorded(env, tmp_path / "data")
    run = algorithms.get(name)(env=env, dataset=dataset, total_frames=40, **SMALL)
    assert run.train().metrics.reported["eval/return"] == 9.0
    with pytest.raises(ConfigError, match=r"dt: .*action_mask.*leave that out; iql, cql and bc"):
        algorithms.get("dt")(env=env, dataset=dataset, total_frames=40, **SMALL).trainer()


def test_critics_from_data_see_what_is_for_them_alone(tmp_path):
    env = partial(AnyEnv, spaces.Dict(x=VECTOR, critic=spaces.Box(-1, 1, (4,))), CHOICE)
    dataset = recorded(env, tmp_path / "data")
    run = algorithms.get("iql")(env=env, dataset=dataset, total_frames=40, **SMALL)
    loss_module: Any = run.train().loss_module
    assert loss_module.qvalue_network[0].in_keys == loss_module.value_network.in_keys == ["critic"]
    assert loss_module.actor_network.in_keys == ["x"]


@pytest.mark.parametrize("memory", [None, "lstm"])
def test_what_learners_write_is_not_recorded(memory, tmp_path):
    hooks = [RecordDataset(tmp_path / "data")]
    few = {"num_envs": 2, "steps_per_batch": 16, "mini_batch_size": 16, "total_frames": 64}
    few |= {"num_cells": (8,), "eval_episodes": 0, "progress_bar": False, "memory": memory}
    algorithms.get("ppo")(env="CartPole-v1", hooks=hooks, **few).train()
    entries = load_dataset(tmp_path / "data").transitions
    assert set(entries.keys()) == {"observation", "action", "next"}
    assert set(entries["next"].keys()) == {"observation", "reward", "terminated", "truncated"}


@pytest.mark.parametrize("name", ["iql", "cql", "bc", "dt", "dqn"])
def test_types_become_those_of_batches(name, tmp_path):
    env = partial(AnyEnv, VECTOR, CHOICE)
    odd = recorded(env, tmp_path / "data").transitions.double()
    for key in ("reward", "terminated", "truncated"):
        odd["next", key] = odd["next", key].squeeze(-1)
    options: dict[str, Any] = {**SMALL, "env": env, "total_frames": 40}
    options |= ONLINE if name == "dqn" else {}
    make = algorithms.get(name)
    assert make(dataset=Dataset(odd), **options).train().optim_count > 0
    lacking = odd.exclude("action" if name != "dt" else ("next", "reward"))
    with pytest.raises(ConfigError, match="the data set has no"):
        make(dataset=Dataset(lacking), **options).trainer()
    odd["action"] += 5  # as the environment counts
    with pytest.raises(ConfigError, match=r"actions from 5.* to 7.*: let them count from 0"):
        make(dataset=Dataset(odd), **options).trainer()


def test_an_option_for_continuous_actions_is_refused_with_discrete_ones(tmp_path):
    env = partial(AnyEnv, VECTOR, CHOICE)
    data = recorded(env, tmp_path / "data")
    with pytest.raises(ConfigError, match="num_random=4 has no effect with discrete actions"):
        algorithms.get("cql")(env=env, dataset=data, num_random=4, **SMALL).trainer()


@pytest.mark.parametrize(
    ("name", "action", "takers"),
    [
        ("td3bc", CHOICE, "iql, cql, dt and bc take discrete"),
        ("dt", spaces.MultiDiscrete([3, 2]), "bc takes MultiDiscrete"),
    ],
)
def test_algorithms_for_data_that_take_other_actions_are_named(name, action, takers):
    run = algorithms.get(name)(dataset="data", env=partial(AnyEnv, VECTOR, action), **SMALL)
    with pytest.raises(ConfigError, match=f"actions: {takers} actions"):
        run.trainer()


@pytest.mark.parametrize("name", ["sac", "dsac", "masac"])
def test_a_temperature_is_positive(name):
    env = "CartPole-v1" if name == "dsac" else "Pendulum-v1"
    env = "vmas/balance" if name == "masac" else env
    with pytest.raises(ConfigError, match=r"alpha_init=0\.0: pass a positive number"):
        algorithms.get(name)(env=env, alpha_init=0.0, total_frames=40, **SMALL).trainer()
