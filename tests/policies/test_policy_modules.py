"""A saved policy as a module: what it computes, what it trains, what its choices are made by."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from marks import slow_except
from test_exported_policies import CASES, HYBRID, TUPLE, actor, normalized
from torch.nn.functional import cross_entropy

from hooktrainer import ConfigError, load_policy
from hooktrainer.policies import PolicyModule, copy_weights
from hooktrainer.policies.exported import record


@pytest.fixture
def loaded(save):
    def load(policy, env) -> PolicyModule:
        return load_policy(save(policy, env), as_module=True, trust=True)

    return load


@pytest.mark.parametrize(
    "case", slow_except(CASES, "normalized, within bounds", "mask", "several agents", "lstm")
)
def test_it_acts_as_the_policy(case, save):
    make, env = CASES[case]
    saved = save(make(), env)
    inputs, expected = record(load_policy(saved, trust=True), 20, env())
    module = load_policy(saved, trust=True, as_module=True)
    for ours, theirs in zip(module(*inputs), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_it_trains_what_was_trained_and_nothing_else(loaded):
    policy = normalized()
    module = loaded(policy, CASES["normalized, within bounds"][1])
    names = {f"policy.{name}" for name, _ in policy.named_parameters()}
    assert {name for name, _ in module.named_parameters()} == names
    assert {"policy.network.0._shift", "policy.network.0._scale"} <= dict(
        module.named_buffers()
    ).keys()


def test_it_learns_other_actions(loaded):
    torch.manual_seed(0)
    module = loaded(actor(spaces.Discrete(3)), CASES["discrete"][1])
    observations = torch.randn(30, 4)
    wanted = observations[:, :3].argmax(-1)
    assert (module(observations)[0] == wanted).float().mean() < 0.9
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        cross_entropy(module.scores(observations)[0], wanted).backward()
        optimizer.step()
    assert (module(observations)[0] == wanted).float().mean() > 0.95


def test_another_number_of_tensors_is_refused(loaded):
    module = loaded(actor(spaces.Discrete(3)), CASES["discrete"][1])
    for given in ([], [torch.randn(2, 4)] * 2):
        with pytest.raises(ConfigError, match=f"takes 1 tensor, .*not {len(given)}"):
            module.scores(*given)


def test_the_scores_of_discrete_actions_are_logits(loaded):
    policy = actor(spaces.Discrete(3))
    module = loaded(policy, CASES["discrete"][1])
    observations = torch.randn(5, 4)
    (scores,) = module.scores(observations)
    assert scores.requires_grad
    torch.testing.assert_close(scores, policy.network(observations))
    assert module(observations)[0].equal(scores.argmax(-1))


def test_every_choice_has_its_scores(loaded):
    force, kind = loaded(actor(HYBRID), CASES["hybrid action"][1]).scores(torch.randn(5, 4))
    assert (force.shape, kind.shape) == ((5, 2), (5, 3))
    columns, bits = loaded(actor(TUPLE), CASES["tuple action"][1]).scores(torch.randn(5, 4))
    assert columns.shape == (5, 2, 3)
    assert (columns[:, 1, 2] == torch.finfo(torch.float32).min).all()  # the second has only two
    assert ((bits > 0) & (bits < 1)).all()


def test_its_weights_are_those_of_the_network(loaded):
    policy, other = actor(spaces.Discrete(3)), actor(spaces.Discrete(3))
    copy_weights(other, loaded(policy, CASES["discrete"][1]))
    for ours, theirs in zip(other.parameters(), policy.parameters(), strict=True):
        assert ours.equal(theirs)


def test_a_module_of_something_else_is_no_policy():
    with pytest.raises(ConfigError, match="this Linear has no weights"):
        copy_weights(torch.nn.ReLU(), torch.nn.Linear(1, 1))
