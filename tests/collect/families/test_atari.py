"""Atari with its usual wrappers: what the numbers are, and that a resumed game is the same game."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from marks import slow_except

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.collect.families import usual_wrappers
from hooktrainer.policies.recorder import describe

STILL = {"repeat_action_probability": 0.0}


def made(env_id: str, training: bool, **kwargs: Any) -> gym.Env[Any, Any]:
    wrapped = usual_wrappers(env_id, kwargs)
    assert wrapped is not None
    return gym.make(wrapped.train if training else wrapped.play)


def lives_of(env: Any, episodes: int) -> list[list[int]]:
    """By episode, the lives at its beginning and its end, if nothing is ever done."""
    found = []
    for seed in range(episodes):
        _, info = env.reset(seed=seed)
        first, over = info["lives"], False
        while not over:
            _, _, terminated, truncated, info = env.step(0)
            over = terminated or truncated
        found.append([first, info["lives"]])
    return found


def test_an_episode_in_training_is_a_life() -> None:
    env = made("ALE/Breakout-v5", training=True, **STILL)
    # FIRE brings the ball into the game at each life, else it would never be lost.
    assert lives_of(env, 6) == [[5, 4], [4, 3], [3, 2], [2, 1], [1, 0], [5, 4]]
    env.close()


def test_an_episode_that_is_played_is_a_game() -> None:
    env = made("ALE/Breakout-v5", training=False, **STILL)
    assert lives_of(env, 2) == [[5, 0], [5, 0]]
    env.close()


def test_rewards_are_clipped_in_training_alone() -> None:
    rewards = []
    for training in (True, False):
        env = made("ALE/MsPacman-v5", training, **STILL)
        env.reset(seed=0)
        rewards.append([env.step(action % 9)[1] for action in range(120)])
        env.close()
    clipped, true = map(np.array, rewards)
    assert set(true.tolist()) >= {0.0, 10.0}
    assert (clipped == np.sign(true)).all()


def test_observations_are_those_of_gymnasiums_wrappers() -> None:
    env = made("ALE/Pong-v5", training=False)
    bare = gym.make("ALE/Pong-v5", frameskip=1)
    plain = FrameStackObservation(AtariPreprocessing(bare), 4)
    got, _ = env.reset(seed=3)
    plain.reset(seed=3)
    expected = plain.step(1)[0]  # FIRE
    assert got.shape == (4, 84, 84)
    assert got.dtype == np.uint8
    for action in (0, 2, 3, 0, 5):
        np.testing.assert_array_equal(got, expected)
        before = env.unwrapped.ale.getEpisodeFrameNumber()
        (got, *rest), (expected, *others) = env.step(action), plain.step(action)
        assert rest == others
        assert env.unwrapped.ale.getEpisodeFrameNumber() == before + 4
    env.close()
    plain.close()


@pytest.mark.parametrize("workers", slow_except([0, 1], 0))
def test_a_game_is_resumed_in_the_middle_of_a_life(workers: int) -> None:
    def build() -> VectorCollector:
        wrapped = usual_wrappers("ALE/Breakout-v5")
        assert wrapped is not None
        return VectorCollector(wrapped.train, num_envs=2, frames_per_batch=120, workers=workers)

    collector = build()
    assert {restore.method for restore in collector.envs.restores} == {"state"}
    batch = collector.collect()
    assert batch["next", "terminated"].any()  # so that the running episodes are not first lives
    assert batch["next", "observation"].dtype == torch.uint8
    state = collector.state_dict()
    resumed = build()
    resumed.load_state_dict(state)
    assert (resumed.collect() == collector.collect()).all()
    state = resumed.state_dict()  # of a game that was brought back itself
    resumed.shutdown()
    resumed = build()
    resumed.load_state_dict(state)
    assert (resumed.collect() == collector.collect()).all()
    collector.shutdown()
    resumed.shutdown()


@pytest.mark.slow
def test_a_saved_policy_finds_the_game_as_it_is_played() -> None:
    wrapped = usual_wrappers("ALE/Breakout-v5", STILL)
    assert wrapped is not None
    environment = describe(wrapped.play).environment
    env = type(environment).decode(environment.encode()).make()  # without trust
    assert lives_of(env, 1) == [[5, 0]]
    assert env.observation_space.shape == (4, 84, 84)
    env.close()


def test_ales_own_vector_environment_is_stepped_in_both_of_its_modes() -> None:
    batches = []
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        env = AtariVectorEnv("breakout", 2, autoreset_mode=mode, episodic_life=True, num_threads=1)
        collector = VectorCollector(env, _still, frames_per_batch=120)
        batches.append(collector.collect())
        collector.shutdown()
    same, later = batches
    assert same["observation"].shape == (2, 60, 4, 84, 84)
    assert same["next", "done"].any()
    for key in ("done", "reward", "step_count", "observation"):
        assert same["next", key].equal(later["next", key])


def _still(observation: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(observation), dtype=torch.int64)


def test_arguments_that_do_not_go_with_the_wrappers_are_refused() -> None:
    for name, value in (("obs_type", "ram"), ("frameskip", 4), ("continuous", True)):
        with pytest.raises(ConfigError, match=f"not {value!r}: leave it out"):
            usual_wrappers("ALE/Pong-v5", {name: value})
