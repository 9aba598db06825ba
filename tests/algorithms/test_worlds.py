"""Every algorithm trains on a tensor world, and goes on exactly where it stopped."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from marks import slow_except
from test_algorithms import ANNEALING, COLLECTING, SAVED, assert_resumed_is_whole
from test_algorithms import make as make_small
from toy_worlds import Ladder

from hooktrainer import Trainer, VectorCollector, algorithms
from hooktrainer.collect.worlds.classic_control import CartPoleWorld
from hooktrainer.errors import ConfigError


def make(name: str, total_frames: int = 200, **options: object) -> Trainer:
    kind = algorithms.get(name)
    env = "torch/CartPole-v1"
    if kind.actions in ("continuous", "bounded"):
        env = "torch/Pendulum-v1"
    small = {"env": env, "num_envs": 4}
    if name in ANNEALING:
        small |= {"steps_per_batch": 10, "anneal_lr": False}
    return make_small(name, total_frames, **small | options)


@pytest.mark.parametrize("name", COLLECTING)
def test_it_trains(name):
    trainer = make(name, 120)
    assert type(trainer.source) is VectorCollector
    before = [parameter.clone() for parameter in trainer.loss_module.parameters()]
    trainer.train()
    after = trainer.loss_module.parameters()
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert "eval/return" in trainer.metrics.reported


# What resumes is the collector: one trained by each kind of loop.
@pytest.mark.parametrize("name", ["ppo", "dqn", "mbpo"])
def test_it_trains_and_is_resumed_in_mid_episode(name, tmp_path):
    assert_resumed_is_whole(partial(make, name, **SAVED), tmp_path, 320, 200)


@pytest.mark.parametrize("name", slow_except(["ppo", "sac"], "ppo"))
def test_it_remembers(name, tmp_path):
    options = {**SAVED, "memory": "gru", "memory_size": 8}
    if name == "ppo":
        options["mini_batch_size"] = 20
    else:
        options["optim_steps_per_batch"] = 2
    assert_resumed_is_whole(partial(make, name, **options), tmp_path, 240, 150)


def test_what_a_policy_remembers_is_forgotten_where_an_episode_begins():
    trainer = make("ppo", env=Ladder, memory="gru", memory_size=8, mini_batch_size=20)
    batch = torch.cat([trainer.source.collect() for _ in range(2)], 1)
    begins = batch["next", "step_count"] == 1  # of 4 steps each
    assert begins.sum(1).flatten().tolist() == [5] * 4
    assert torch.equal(batch["is_init"], begins)
    remembered, begins = batch["memory", "h"], begins.squeeze(-1)
    assert not remembered[begins].any()
    assert remembered[~begins].flatten(1).any(-1).all()


def test_a_world_that_is_built_is_trained_on_without_evaluation():
    with pytest.raises(
        ConfigError, match=r"env=torch/CartPole-v1 is built already.*eval_episodes=0"
    ):
        make("ppo", env=CartPoleWorld(4))
    trainer = make("ppo", env=CartPoleWorld(4), eval_episodes=0)
    trainer.train()
    assert trainer.collected_frames == 200
    with pytest.raises(ConfigError, match="with 3 environments: give num_envs=3"):
        make("ppo", env=CartPoleWorld(3), eval_episodes=0)


def test_gaussian_actions_are_clipped_for_the_world():
    trainer = make("ppo", env="torch/MountainCarContinuous-v0", log_std=3.0)
    batch = trainer.source.collect()
    assert float(batch["action"].abs().max()) > 2
    assert float(batch["next", "reward"].min()) >= -0.1 - 1e-6
