"""Every algorithm for continuous actions learns a task that takes seconds: do what you see."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from goal_envs import BitFlip, Reach
from gymnasium import spaces
from marks import slow_except
from remembering import Recall
from tensordict import TensorDict

from hooktrainer import AdversarialImitation, VectorCollector, algorithms
from hooktrainer.data import RecordDataset
from hooktrainer.testing import tiny_trainer

pytestmark = pytest.mark.learning

SMALL = {"num_cells": (32, 32), "eval_episodes": 50, "seed": 0, "progress_bar": False}
# A run ends when an evaluation has what is asked for.
REPLAY = {"total_frames": 2_400, "eval_interval": 400, "init_random_frames": 400, "batch_size": 64}


class Copy(gym.Env):
    """One step: a target in [-1, 1] is seen, and costs four times the squared distance to it.

    Random actions in [-2, 2] return -6.7 on average.
    """

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Box(-2.0, 2.0, (1,))

    def __init__(self) -> None:
        self.target = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.target = self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
        return self.target, {}

    def step(self, action):
        reward = -4.0 * float((action[0] - self.target[0]) ** 2)
        return self.target, reward, True, False, {}


class Parts(gym.Env):
    """One step: a number and a class are seen, and every part of the action is to name them.

    A Box costs four times the squared distance to the number; a choice other than the class costs
    1, as does a bit that is not that of the class.
    """

    observation_space = spaces.Box(-1.0, 1.0, (4,))

    def __init__(self, action_space: spaces.Space) -> None:
        self.action_space = action_space
        self.target, self.kind = 0.0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.target = float(self.np_random.uniform(-1.0, 1.0))
        self.kind = int(self.np_random.integers(3))
        return np.array([self.target, *np.eye(3)[self.kind]], np.float32), {}

    def step(self, action):
        reward = -self._cost(self.action_space, action)
        return np.zeros(4, np.float32), reward, True, False, {}

    def _cost(self, space, action):
        if isinstance(space, spaces.Dict):
            return sum(self._cost(part, action[key]) for key, part in space.spaces.items())
        if isinstance(space, spaces.Box):
            return 4.0 * float((action[0] - self.target) ** 2)
        wanted = np.eye(3)[self.kind] if isinstance(space, spaces.MultiBinary) else self.kind
        return float(np.sum(np.asarray(action) != wanted))


PARTS = {
    "discrete": spaces.Discrete(3),
    "multi discrete": spaces.MultiDiscrete([3, 4]),
    "multi binary": spaces.MultiBinary(3),
    "hybrid": spaces.Dict(move=spaces.Box(-2.0, 2.0, (1,)), pick=spaces.Discrete(3)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "action"),
    [*(("sac", action) for action in PARTS), ("dsac", "discrete")],
)
def test_discrete_and_mixed_actions_from_a_replay_buffer(name, action):
    replay = {**REPLAY, "num_envs": 4, "steps_per_batch": 4, "optim_steps_per_batch": 8}
    env = partial(Parts, PARTS[action])
    trainer = algorithms.get(name)(env=env, stop_at=-0.29, **SMALL, **replay).trainer()
    trainer.train()
    assert trainer.metrics.reported["eval/return"] > -0.3  # of random actions, -2 to -7


@pytest.mark.parametrize("name", slow_except(["ddpg", "td3", "sac"], "sac"))
def test_from_a_replay_buffer(name):
    trainer = algorithms.get(name)(env=Copy, stop_at=-0.09, **SMALL, **REPLAY).trainer()
    trainer.train()
    assert trainer.metrics.reported["eval/return"] > -0.1


@pytest.mark.parametrize(
    ("name", "arguments"),
    slow_except([("iql", {"expectile": 0.9}), ("cql", {}), ("td3bc", {"alpha": 10.0})], 0),
)
def test_from_random_actions_of_a_data_set(name, arguments, tmp_path):
    collector = VectorCollector(Copy, num_envs=10, frames_per_batch=1_000)
    recording = tiny_trainer(collector=collector, total_frames=2_000, seed=0)
    record = RecordDataset(tmp_path / "data")
    record.register(recording)
    recording.train()
    assert record.dataset.mean_return == pytest.approx(-6.7, abs=0.5)

    options = {"total_frames": 64 * 600, "batch_size": 64, "eval_interval": 64 * 100}
    trainer = algorithms.get(name)(
        env=Copy, dataset=record.dataset, stop_at=-0.45, **options, **arguments, **SMALL
    ).trainer()
    trainer.train()
    assert trainer.metrics.reported["eval/return"] > -0.5
    assert trainer.metrics.reported["data/return"] == pytest.approx(record.dataset.mean_return)


class Choose(gym.Env):
    """One step: which of three things is seen has to be named; by guessing, a third succeeds."""

    observation_space = spaces.Box(0.0, 1.0, (3,))
    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        self.seen = np.zeros(3, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen = np.eye(3, dtype=np.float32)[self.np_random.integers(3)]
        return self.seen, {}

    def step(self, action):
        return self.seen, float(self.seen[action]), True, False, {}


@pytest.mark.parametrize(
    ("name", "arguments", "least"),
    [
        ("cql", {"min_q_weight": 0.1}, 0.95),
        ("iql", {"temperature": 10.0, "expectile": 0.8}, 0.95),
        ("bc", {}, 0.0),
        ("dt", {"width": 16, "depth": 1, "context_length": 2}, 0.95),
    ],
)
def test_from_random_choices_of_a_data_set(name, arguments, least, tmp_path):
    collector = VectorCollector(Choose, num_envs=10, frames_per_batch=500)
    recording = tiny_trainer(collector=collector, total_frames=500, seed=0)
    record = RecordDataset(tmp_path / "data")
    record.register(recording)
    recording.train()
    small = {**SMALL, "batch_size": 64, "total_frames": 64 * 150, "lr": 5e-3}
    run = algorithms.get(name)(env=Choose, dataset=record.dataset, **small, **arguments)
    trainer = run.trainer()
    trainer.train()
    assert trainer.metrics.reported["eval/return"] >= least
    if name == "bc":  # the likelihood of choices at random
        assert trainer.metrics.reported["loss/bc"] == pytest.approx(np.log(3), abs=0.1)


@pytest.mark.parametrize("name", slow_except(["ppo", "a2c", "reinforce", "trpo"], "ppo"))
def test_from_what_the_policy_collects(name):
    options = {"total_frames": 30_000, "eval_interval": 4_000, "stop_at": -0.29}
    trainer = algorithms.get(name)(env=Copy, **options, **SMALL).trainer()
    trainer.train()
    assert trainer.metrics.reported["eval/return"] > -0.3


@pytest.mark.slow
def test_from_an_expert_by_its_discriminator():
    """Without a reward of the environment."""
    seen = torch.rand(500, 1) * 2 - 1
    expert = TensorDict(observation=seen, action=seen.clone(), batch_size=[500])
    imitation = AdversarialImitation(expert, lr=3e-3, steps=32, penalty=1.0)
    options = {"action_distribution": "squashed", "anneal_lr": False, "hooks": [imitation]}
    options |= {"total_frames": 30_000, "eval_interval": 4_000, "stop_at": -0.59}
    trainer = algorithms.PPO(env=Copy, **options, **SMALL).trainer()
    trainer.train()
    assert trainer.metrics.reported["eval/return"] > -0.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits", "her"), [(15, "future"), (8, "final"), (8, "episode"), (15, None)]
)
def test_to_flip_bits_by_hindsight(bits, her):
    """The best is -(bits / 2 - 1) on average. Without hindsight no reward is ever seen."""
    settings = {"gamma": 0.98, "lr": 1e-3, "eps_end": 0.1, "tuned": False, "eval_interval": 2_000}
    trainer = algorithms.DQN(
        env=partial(BitFlip, bits),
        her=her,
        total_frames=8_000 if her else 2_000,
        stop_at=-bits / 2 - 0.5,
        **{**SMALL, **settings, "num_cells": (256, 256)},
    ).trainer()
    trainer.train()
    reached = trainer.metrics.reported["eval/return"]
    assert reached == -15 if her is None else reached > -bits / 2 - 0.5


@pytest.mark.slow
def test_to_reach_a_point_by_hindsight():
    """At -1 a step, staying where one is costs 25; the way takes 5 steps on average."""
    options = {"total_frames": 8_000, "eval_interval": 2_000, "stop_at": -6.0, "gamma": 0.95}
    trainer = algorithms.TD3(env=Reach, her="future", **{**SMALL, **options}).trainer()
    trainer.train()
    assert trainer.metrics.reported["eval/return"] > -7


@pytest.mark.parametrize(
    ("name", "memory"),
    slow_except([("ppo", "gru"), ("ppo", "lstm"), ("ppo", "transformer"), ("dqn", "gru")], 0),
)
def test_to_remember(name, memory):
    """What is seen in the first step has to be named in all others: by guessing, 2.8."""
    settings = {
        "ppo": {"num_envs": 16, "steps_per_batch": 32, "mini_batch_size": 128, "num_epochs": 4},
        "dqn": {
            **{"batch_size": 256, "init_random_frames": 500, "annealing_frames": 2_000},
            **{"optim_steps_per_batch": 8, "lr": 2e-3},
        },
    }
    trainer = algorithms.get(name)(
        env=Recall,
        total_frames=12_000,
        memory=memory,
        memory_size=32,
        eval_interval=1_500,
        stop_at=5.5,
        **{**SMALL, **settings[name]},
    ).trainer()
    trainer.train()
    assert trainer.metrics.reported["eval/return"] > 5.0
