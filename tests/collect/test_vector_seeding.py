"""Every episode has a seed of its own; data do not depend on how environments are grouped."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from toy_envs import Counter

from hooktrainer import VectorCollector
from hooktrainer.collect.batched_env import EpisodeSeeds
from hooktrainer.collect.scalar_envs import ScalarEnvs


def test_a_seed_depends_on_run_environment_and_episode_alone() -> None:
    seeds = EpisodeSeeds(3)
    table = np.array([[seeds(env, episode) for episode in range(200)] for env in range(4)])
    assert len(np.unique(table)) == table.size
    assert table.min() >= 0
    assert table.max() < 2**31
    again = EpisodeSeeds(3)
    assert again(2, 150) == table[2, 150]
    assert again(2, 10) == table[2, 10]  # whatever order they are asked in
    assert EpisodeSeeds(3, first_env=2)(1, 7) == table[3, 7]
    assert EpisodeSeeds(4)(0, 0) != table[0, 0]


def test_the_vectorised_environment_gives_the_same_data_as_scalar_ones() -> None:
    options: Any = {"num_envs": 7, "frames_per_batch": 7 * 300, "seed": 11, "traj_ids": True}
    env_id = "CartPole-v1"
    vectorised = VectorCollector(env_id, **options)
    scalar = VectorCollector(env_id, vectorization_mode="sync", **options)
    factories = VectorCollector([lambda: gym.make(env_id)] * 7, **options)
    made = VectorCollector(gym.make_vec(env_id, 7), **options)
    sync = VectorCollector(gym.make_vec(env_id, 7, vectorization_mode="sync"), **options)
    assert isinstance(sync.envs, ScalarEnvs)
    for _ in range(2):
        batch = vectorised.collect()
        assert batch["next", "done"].sum() > 7
        for other in (scalar, factories, made, sync):
            assert (other.collect() == batch).all()


def test_reset_begins_the_next_episodes() -> None:
    collector = VectorCollector([lambda: Counter(100)], frames_per_batch=3, traj_ids=True)
    first = collector.collect()
    collector.reset()
    second = collector.collect()
    assert second["observation"][0, :, 1].tolist() == [0, 1, 2]
    assert second["collector", "traj_ids"][0].tolist() == [1, 1, 1]
    assert second["next", "step_count"][0, :, 0].tolist() == [1, 2, 3]
    assert second["observation"][0, 0, 0] != first["observation"][0, 0, 0]
