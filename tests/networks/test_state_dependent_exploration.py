"""Noise that is a function of the state: held for some steps, of the right variance, resumed."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn

from hooktrainer.errors import ConfigError
from hooktrainer.networks import (
    DiagonalGaussianPolicy,
    Policy,
    SquashedStateDependentGaussian,
    StateDependentExploration,
    StateDependentGaussian,
    mlp,
)

BOX = spaces.Box(-2.0, 2.0, (2,))


KINDS = {
    "unbounded": lambda log_std=0.0: StateDependentGaussian(5, (2,), log_std),
    "squashed": lambda log_std=0.0: SquashedStateDependentGaussian(5, (2,), -2.0, 2.0, log_std),
}
EACH = pytest.mark.parametrize("kind", KINDS)


def make(interval=3, log_std=0.0, kind="squashed"):
    torch.manual_seed(0)
    policy = Policy(nn.Sequential(nn.Linear(3, 5), nn.Tanh()), KINDS[kind](log_std))
    return policy, StateDependentExploration(policy, interval)


def fresh(number):
    """The hidden state at the beginning of episodes: no matrix was drawn."""
    return torch.zeros(number, 5, 2), torch.full((number, 1), -1)


def step(explores, observation, matrix, age):
    data = TensorDict(
        observation=observation,
        exploration={"matrix": matrix, "age": age},
        batch_size=[len(observation)],
    )
    out = explores(data)["next", "exploration"]
    return data["action"], out["matrix"], out["age"]


def test_the_noise_is_held_and_drawn_anew_after_the_interval_and_at_an_episodes_start():
    _, explores = make(interval=3)
    observation = torch.randn(2, 3)
    matrix, age = fresh(2)
    actions = []
    for t in range(6):
        action, matrix, age = step(explores, observation, matrix, age)
        actions.append(action)
        if t == 0:  # the second episode ended after one step
            matrix[1], age[1] = (state[0] for state in fresh(1))
    first, second = torch.stack(actions).unbind(1)
    same = [torch.equal(a, b) for a, b in pairwise(first)]
    assert same == [True, True, False, True, True]
    same = [torch.equal(a, b) for a, b in pairwise(second)]
    assert same == [False, True, True, False, True]


@EACH
def test_its_variance_is_that_of_the_distribution(kind):
    policy, explores = make(1, -1.0, kind)
    observation = torch.randn(1, 3).expand(20_000, 3)
    action, *_ = step(explores, observation, *fresh(20_000))
    distribution = policy.distribution
    unbounded = action if kind == "unbounded" else distribution.box.invert(action)
    loc, log_std = distribution.loc_and_log_std(policy.evaluate(observation[:1]))
    torch.testing.assert_close(unbounded.mean(0), loc[0], atol=0.02, rtol=0)
    torch.testing.assert_close(unbounded.std(0), log_std[0].exp(), atol=0.02, rtol=0)


@EACH
def test_held_noise_has_the_log_probability_that_a_loss_gives_the_action(kind):
    policy, explores = make(3, -0.5, kind)
    data = TensorDict(
        observation=torch.randn(50, 3),
        exploration={"matrix": torch.randn(50, 5, 2), "age": torch.zeros(50, 1).long()},
        batch_size=[50],
    )
    explores(data)
    inputs = policy.inputs(data)
    log_prob, _ = policy.log_prob_and_entropy(inputs, data["action"])
    torch.testing.assert_close(data["action_log_prob"], log_prob, atol=1e-4, rtol=1e-4)
    assert not data["action_log_prob"].requires_grad
    theirs = policy.get_dist(data).log_prob(data["action"])
    torch.testing.assert_close(log_prob, theirs, atol=2e-3, rtol=1e-3)


def test_the_deviation_is_learned_and_its_features_are_not_by_way_of_it():
    policy, _ = make()
    observation = torch.randn(8, 3)
    _, log_std = policy.distribution.loc_and_log_std(policy.evaluate(observation))
    log_std.sum().backward()
    assert policy.distribution.log_std.grad.abs().sum() > 0
    assert policy.network[0].weight.grad is None or not policy.network[0].weight.grad.any()


def test_another_distribution_is_refused():
    with pytest.raises(ConfigError, match=r"DiagonalGaussian.*StateDependentGaussian"):
        StateDependentExploration(DiagonalGaussianPolicy(mlp(3, 2), 2))
    with pytest.raises(ConfigError, match="interval"):
        StateDependentExploration(make()[0], 0)
