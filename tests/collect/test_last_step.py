"""`LastAction` and `LastReward`: the last step as a part of the observation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from any_env import AnyEnv
from gymnasium import spaces

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.collect import LastAction, LastReward

BOX = spaces.Box(1, 2, (2,))


@pytest.mark.parametrize(
    ("space", "action", "flat"),
    [
        (spaces.Discrete(3, start=5), 6, [0, 1, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
        (BOX, np.array([1.25, 1.5], np.float32), [1.25, 1.5]),
        (spaces.Dict(a=spaces.Discrete(2), b=BOX), {"a": 0, "b": BOX.low}, [1, 0, 1, 1]),
    ],
)
def test_the_last_action_is_a_vector_and_nothing_where_an_episode_begins(
    space: Any, action: Any, flat: list[float]
) -> None:
    env = LastAction(AnyEnv(BOX, space))
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert observation["last_action"].tolist() == [0.0] * len(flat)
    observation = env.step(action)[0]
    assert env.observation_space.contains(observation)
    assert observation["last_action"].tolist() == flat
    assert env.reset()[0]["last_action"].tolist() == [0.0] * len(flat)


def test_entries_are_added_to_those_of_a_dict() -> None:
    own = spaces.Dict(x=BOX, action_mask=spaces.Box(0, 1, (2,), np.int8))
    for space, keys in ((own, {"x", "action_mask"}), (BOX, {"observation"})):
        env = LastAction(LastReward(AnyEnv(space, spaces.Discrete(2))))
        both = {"last_action", "last_reward"}
        assert env.reset()[0].keys() == env.observation_space.spaces.keys() == keys | both


@pytest.mark.parametrize("wrapper", [LastAction, LastReward])
def test_an_entry_is_not_put_in_the_place_of_another(wrapper: Any) -> None:
    with pytest.raises(ConfigError, match=r"an entry 'last_\w+' already: leave this wrapper out"):
        wrapper(wrapper(AnyEnv(BOX, BOX)))


def test_collected_observations_have_the_action_before(tmp_path: Path) -> None:
    collector = VectorCollector(
        lambda: LastAction(gym.make("CartPole-v1")), num_envs=2, frames_per_batch=200
    )
    batch = collector.collect()
    collector.shutdown()
    action = torch.nn.functional.one_hot(batch["action"], 2).float()
    assert torch.equal(batch["next", "last_action"], action)
    done = batch["next", "done"][:, :-1]
    assert done.any()
    assert torch.equal(batch["last_action"][:, 1:], action[:, :-1] * ~done)
