"""Noise that is a function of the state: held for some steps, of the right variance, resumed."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import torch
from any_env import AnyEnv
from gymnasium import spaces
from tensordict import TensorDict
from tensordict.nn import InteractionType
from tensordict.nn.probabilistic import set_interaction_type
from torch import nn

from hooktrainer import VectorCollector, algorithms
from hooktrainer.errors import ConfigError
from hooktrainer.networks import (
    DiagonalGaussianPolicy,
    Policy,
    StateDependentExploration,
    StateDependentGaussian,
    mlp,
)

BOX = spaces.Box(-2.0, 2.0, (2,))


def make(interval=3, log_std=0.0):
    torch.manual_seed(0)
    distribution = StateDependentGaussian(5, (2,), -2.0, 2.0, log_std)
    policy = Policy(nn.Sequential(nn.Linear(3, 5), nn.Tanh()), distribution, out_keys=["action"])
    return policy, StateDependentExploration(policy, interval)


def step(explores, observation, is_init, matrix, age):
    data = TensorDict(
        observation=observation,
        is_init=is_init,
        exploration={"matrix": matrix, "age": age},
        batch_size=[len(observation)],
    )
    out = explores(data)["next", "exploration"]
    return data["action"], out["matrix"], out["age"]


def test_the_noise_is_held_and_drawn_anew_after_the_interval_and_at_an_episodes_start():
    _, explores = make(interval=3)
    observation = torch.randn(2, 3)
    matrix, age = torch.zeros(2, 5, 2), torch.zeros(2, 1, dtype=torch.int64)
    is_init = torch.tensor([[True], [True]])
    actions = []
    for t in range(6):
        action, matrix, age = step(explores, observation, is_init, matrix, age)
        actions.append(action)
        is_init = torch.tensor([[False], [t == 0]])  # the second episode ended after one step
    first, second = torch.stack(actions).unbind(1)
    same = [torch.equal(a, b) for a, b in pairwise(first)]
    assert same == [True, True, False, True, True]
    same = [torch.equal(a, b) for a, b in pairwise(second)]
    assert same == [False, True, True, False, True]


def test_its_variance_is_that_of_the_distribution():
    policy, explores = make(interval=1, log_std=-1.0)
    observation = torch.randn(1, 3).expand(20_000, 3)
    action, *_ = step(
        explores,
        observation,
        torch.ones(20_000, 1, dtype=torch.bool),
        torch.zeros(20_000, 5, 2),
        torch.zeros(20_000, 1, dtype=torch.int64),
    )
    distribution = policy.distribution
    unbounded = distribution.box.invert(action)
    loc, log_std = distribution.loc_and_log_std(policy.evaluate(observation[:1]))
    torch.testing.assert_close(unbounded.mean(0), loc[0], atol=0.02, rtol=0)
    torch.testing.assert_close(unbounded.std(0), log_std[0].exp(), atol=0.02, rtol=0)


def test_the_best_action_has_no_noise():
    policy, explores = make()
    observation = torch.randn(4, 3)
    with set_interaction_type(InteractionType.DETERMINISTIC):
        data = (torch.ones(4, 1, dtype=torch.bool), torch.randn(4, 5, 2), torch.zeros(4, 1).long())
        action, *_ = step(explores, observation, *data)
        torch.testing.assert_close(action, policy.act(observation)["action"])


def test_the_deviation_is_learned_and_its_features_are_not_by_way_of_it():
    policy, _ = make()
    observation = torch.randn(8, 3)
    _, log_std = policy.distribution.loc_and_log_std(policy.evaluate(observation))
    log_std.sum().backward()
    assert policy.distribution.log_std.grad.abs().sum() > 0
    assert policy.network[0].weight.grad is None or not policy.network[0].weight.grad.any()


def test_a_collector_goes_on_with_the_noise_it_held():
    def collector():
        _, explores = make(interval=7)
        env = partial(AnyEnv, spaces.Box(-1, 1, (3,)), BOX)
        return VectorCollector(env, explores, num_envs=2, frames_per_batch=8)

    whole = collector()
    torch.manual_seed(1)
    whole.collect()
    state, random = whole.state_dict(), torch.get_rng_state()
    second = whole.collect()
    resumed = collector()
    resumed.load_state_dict(state)
    torch.set_rng_state(random)
    assert torch.equal(resumed.collect()["action"], second["action"])
    matrices = second["exploration", "matrix"]
    assert torch.equal(matrices[:, 1], matrices[:, 2])


@pytest.mark.parametrize("name", ["sac"])
def test_an_algorithm_explores_by_it(name):
    env = partial(AnyEnv, spaces.Box(-1, 1, (3,)), BOX)
    options = {"num_cells": (8,), "batch_size": 8, "init_random_frames": 16, "eval_episodes": 2}
    kind = algorithms.get(name)
    run = kind(env=env, total_frames=64, sde=True, sde_interval=4, progress_bar=False, **options)
    trainer = run.train()
    assert isinstance(trainer.loss_module.actor_network.distribution, StateDependentGaussian)


def test_another_distribution_is_refused():
    with pytest.raises(ConfigError, match=r"DiagonalGaussian.*StateDependentGaussian"):
        StateDependentExploration(DiagonalGaussianPolicy(mlp(3, 2), 2))
    with pytest.raises(ConfigError, match="interval"):
        StateDependentExploration(make()[0], 0)
