"""The policies: their three interfaces agree, and agree with torch's distributions."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from hooktrainer.errors import ConfigError
from hooktrainer.networks import CategoricalPolicy, DiagonalGaussianPolicy, TanhGaussianPolicy, mlp

BOUNDS = {"low": [-2.0, 0.0], "high": [2.0, 10.0]}


def make(kind):
    if kind == "categorical":
        return CategoricalPolicy(mlp(4, 3), out_keys=["action", "action_log_prob", "logits"])
    if kind == "gaussian":
        return DiagonalGaussianPolicy(mlp(4, 2), 2, log_std=-0.5)
    return TanhGaussianPolicy(mlp(4, 4), 2, **BOUNDS, out_keys=["action", "action_log_prob"])


KINDS = pytest.mark.parametrize("kind", ["categorical", "gaussian", "tanh"])


@KINDS
def test_the_tensordict_interface_does_what_act_does(kind):
    policy, observation = make(kind), torch.randn(5, 4)
    torch.manual_seed(0)
    out = policy.act(observation)
    torch.manual_seed(0)
    tensordict = policy(TensorDict(observation=observation, batch_size=[5]))
    assert set(out) == set(policy.out_keys)
    for key, value in out.items():
        assert torch.equal(tensordict[key], value)
        assert not value.requires_grad


@KINDS
def test_deterministic_modes_give_one_and_the_same_action(kind):
    policy, observation = make(kind), torch.randn(5, 4)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        first, second = policy.act(observation)["action"], policy.act(observation)["action"]
    assert torch.equal(first, second)
    with set_exploration_type(ExplorationType.RANDOM):
        torch.manual_seed(0)
        assert not torch.equal(
            policy.act(torch.randn(50, 4))["action"], policy.act(torch.randn(50, 4))["action"]
        )
    if kind == "categorical":
        assert torch.equal(first, policy.evaluate(observation).argmax(-1))
    if kind == "gaussian":
        torch.testing.assert_close(first, policy.evaluate(observation).detach())


def test_categorical_frequencies_follow_the_softmax():
    policy = CategoricalPolicy(nn.Identity())
    probs = torch.tensor([0.5, 0.3, 0.2, 0.0])
    torch.manual_seed(0)
    action = policy.act(probs.log().expand(20_000, 4))["action"]
    frequencies = torch.bincount(action, minlength=4) / 20_000
    torch.testing.assert_close(frequencies, probs, atol=0.01, rtol=0)


@pytest.mark.parametrize("out_keys", [["action", "value"], ["action_log_prob"]])
def test_impossible_out_keys_are_refused(out_keys):
    with pytest.raises(ConfigError, match="out_keys"):
        CategoricalPolicy(mlp(4, 2), out_keys=out_keys)
