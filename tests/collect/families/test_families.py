"""Families of environments: found by their ids, wrapped as is usual, resumed exactly."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import pytest
import torch

from hooktrainer import VectorCollector
from hooktrainer.collect.families import usual_wrappers
from hooktrainer.collect.make_envs import find_spec
from hooktrainer.errors import MissingPackageError
from hooktrainer.policies.recorder import describe

IDS = [
    "MiniGrid-DoorKey-5x5-v0",
    "BabyAI-GoToObj-v0",
    "MinAtar/Breakout-v1",
    "MinAtar/SpaceInvaders-v1",
    "popgym-RepeatPreviousEasy-v0",
    "popgym-CountRecallEasy-v0",
    "PointMaze_UMaze-v3",
]


@pytest.mark.parametrize("env_id", IDS)
def test_an_id_is_enough_and_a_resumed_run_is_exact(env_id: str) -> None:
    wrapped = usual_wrappers(env_id)
    source: Any = env_id if wrapped is None else wrapped.train

    def build() -> VectorCollector:
        return VectorCollector(source, num_envs=2, frames_per_batch=150, seed=2)

    collector = build()
    collector.collect()
    state = collector.state_dict()
    resumed = build()
    resumed.load_state_dict(state)
    assert (resumed.collect() == collector.collect()).all()


@pytest.mark.parametrize("env_id", IDS)
def test_a_saved_policy_finds_its_environment_untrusted(env_id: str) -> None:
    wrapped = usual_wrappers(env_id)
    source: Any = env_id if wrapped is None else wrapped.play
    environment = describe(source).environment
    again = type(environment).decode(environment.encode())
    env = again.make()
    assert env.observation_space == gym.make(source).observation_space
    env.close()


def test_minigrid_without_a_mission_that_never_changes() -> None:
    wrapped = usual_wrappers("MiniGrid-Empty-6x6-v0")
    assert wrapped is not None
    assert "without the mission" in wrapped.description
    batch = VectorCollector(wrapped.train, num_envs=2, frames_per_batch=4).collect()
    assert batch["image"].shape == (2, 2, 7, 7, 3)
    assert batch["image"].dtype == torch.uint8
    assert batch["direction"].dtype == torch.int64
    assert "mission" not in set(batch.keys())
    env = gym.make(wrapped.train)
    cells = env.observation_space["image"]
    assert cells.nvec[0, 0].tolist() == [11, 6, 4]  # an object, a color, a state or direction
    assert cells.contains(env.reset(seed=0)[0]["image"])
    env.close()


def test_minatar_forgets_the_action_of_the_episode_before() -> None:
    wrapped = usual_wrappers("MinAtar/Breakout-v1")
    assert wrapped is not None
    env = gym.make(wrapped.train)
    game: Any = env.unwrapped
    env.reset(seed=0)
    for _ in range(5):
        env.step(2)
    assert game.game.last_action != 0
    env.reset(seed=0)
    assert game.game.last_action == 0
    env.close()


def test_what_is_not_of_a_family_or_wrapped_already_is_left_alone() -> None:
    assert usual_wrappers("CartPole-v1") is None
    assert usual_wrappers("vmas/balance") is None  # nothing that Gymnasium knows
    assert usual_wrappers(lambda: gym.make("CartPole-v1")) is None
    wrapped = usual_wrappers("MinAtar/Breakout-v1")
    assert wrapped is not None
    assert usual_wrappers(wrapped.train) is None
    assert find_spec("MinAtar/Breakout-v1").additional_wrappers == ()


def test_dm_control() -> None:
    try:
        wrapped = usual_wrappers("dm_control/cartpole-swingup-v0")
        assert wrapped is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # dm_control's own
            batch = VectorCollector(wrapped.train, num_envs=1, frames_per_batch=8).collect()
    except MissingPackageError as error:
        pytest.skip(str(error))
    assert batch["observation"].shape == (1, 8, 5)
    assert batch["observation"].dtype == torch.float32
