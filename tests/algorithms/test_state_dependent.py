"""Algorithms whose noise follows the state: acting and learning agree, and runs resume exactly."""

from __future__ import annotations

from functools import partial
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from any_env import AnyEnv
from gymnasium import spaces
from marks import slow_except
from remembering import Recall
from test_algorithms import assert_resumed_is_whole

from hooktrainer import ConfigError, algorithms
from hooktrainer.networks import StateDependentGaussian

VECTOR = spaces.Box(-1, 1, (3,))
IMAGE = spaces.Dict(camera=spaces.Box(0, 255, (9, 9, 3), "uint8"), joints=VECTOR)
BOX = spaces.Box(np.array([-2, 0], "f4"), np.array([2, 8], "f4"))
SMALL = {"num_envs": 4, "num_cells": (8,), "eval_episodes": 2, "progress_bar": False}
MAKES = {
    "ppo": {"num_epochs": 2, "mini_batch_size": 20, "steps_per_batch": 20},
    "a2c": {"steps_per_batch": 20},
    "reinforce": {"steps_per_batch": 20},
    "trpo": {"num_epochs": 1, "mini_batch_size": 20, "steps_per_batch": 20},
    "sac": {"init_random_frames": 16, "batch_size": 16, "steps_per_batch": 10},
}
ON_POLICY = ["ppo", "a2c", "reinforce", "trpo"]


def make(name, observation=VECTOR, action=BOX, total_frames=160, **options):
    env = options.pop("env", partial(AnyEnv, observation, action))
    fields = {**SMALL, **MAKES[name], "sde": True, "sde_interval": 3, **options}
    return algorithms.get(name)(env=env, total_frames=total_frames, tuned=False, **fields).trainer()


def assert_acting_and_learning_agree(trainer):
    *_, batch = islice(trainer.collector, 2)
    policy = trainer.loss_module.actor_network
    trainer.shutdown()
    assert isinstance(policy.distribution, StateDependentGaussian)
    log_prob, entropy = policy.log_prob_and_entropy(policy.inputs(batch), batch["action"])
    torch.testing.assert_close(log_prob, batch["action_log_prob"], atol=1e-4, rtol=1e-4)
    assert entropy.requires_grad
    return batch, policy


@pytest.mark.parametrize("distribution", ["gaussian", "squashed"])
@pytest.mark.parametrize("name", ON_POLICY)
def test_acting_and_learning_agree(name, distribution):
    trainer = make(name, action_distribution=distribution)
    batch, policy = assert_acting_and_learning_agree(trainer)
    assert policy._infer.steps(1, torch.float32)
    assert batch["is_init"][:, 1:].any()
    matrix = batch["next", "exploration", "matrix"]
    begins, age = batch["is_init"][..., 0], batch["exploration", "age"][..., 0]
    for env in range(4):
        held = [torch.equal(a, b) for a, b in pairwise(matrix[env])]
        drawn = (begins[env] | (age[env] >= 3))[1:]
        assert held == (~drawn).tolist()
        assert not all(held)


@pytest.mark.parametrize("memory", ["gru", "transformer"])
@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_acting_and_learning_agree_with_a_memory(name, memory):
    small = {"memory_length": 5} if memory == "transformer" else {}
    trainer = make(name, env=partial(Recall, True), memory=memory, memory_size=8, **small)
    assert_acting_and_learning_agree(trainer)


LSTM = {"memory": "lstm", "memory_size": 8}


@pytest.mark.parametrize(
    ("name", "options"), slow_except([("ppo", {}), ("a2c", LSTM), ("sac", LSTM)], 0, 1)
)
def test_a_run_that_is_resumed_while_noise_is_held_is_the_whole_run(name, options, tmp_path):
    fixed = {"save_interval": 80, "log_interval": 80, "sde_interval": 7, **options}
    run = partial(make, name, **fixed)
    first = run(total_frames=80)
    first.train()
    hidden = first.collector.state_dict()["rollout"]["policy"]["hidden"]
    [age] = [value for key, value in hidden if key == ["exploration", "age"]]
    assert ((age > 0) & (age < 7)).any()
    assert_resumed_is_whole(run, tmp_path, 240, 160)


@pytest.mark.parametrize(
    ("action", "options", "message"),
    [
        (spaces.Discrete(3), {}, r"Discrete\(3\).*sde=True is for actions that are one Box"),
        (spaces.Dict(move=BOX), {}, r"sde=True is for actions that are one Box.*leave it out"),
        (
            BOX,
            {"action_distribution": "beta"},
            "sde=True with action_distribution='beta' cannot be: set sde=False, or",
        ),
        (BOX, {"sde_interval": 0}, "sde_interval=0"),
        (
            spaces.Box(-np.inf, np.inf, (1,)),
            {"action_distribution": "squashed"},
            "needs bounded actions",
        ),
    ],
)
def test_where_noise_cannot_follow_the_state_it_is_said_in_one_line(action, options, message):
    with pytest.raises(ConfigError, match=message) as error:
        make("ppo", action=action, **options)
    assert "\n" not in str(error.value)
