"""Noisy layers and dueling streams: by hand, and equal to TorchRL's."""

from __future__ import annotations

import pytest
import torch
import torchrl.modules.models as torchrl
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from hooktrainer.networks import (
    DuelingHead,
    EpsilonGreedy,
    NoisyLinear,
    QNetwork,
    fresh_copy,
    mlp,
    q_head,
)


def test_noise_is_factorized_and_drawn_at_each_call():
    layer = NoisyLinear(3, 2)
    x = torch.eye(3)
    with torch.no_grad():
        layer.bias.zero_()
        layer.bias_sigma.zero_()
    drawn = torch.stack([layer(x).T - layer.weight for _ in range(4_000)])
    assert not torch.equal(drawn[0], drawn[1])
    noise = (drawn / layer.weight_sigma).detach()  # an outer product of f(x) = sign(x) sqrt(|x|)
    assert (torch.linalg.matrix_rank(noise[:20], atol=1e-5) == 1).all()
    # E f(x)^2 = E |x| = sqrt(2 / pi), and rows and columns are independent.
    torch.testing.assert_close(noise.mean(0), torch.zeros(2, 3), atol=0.05, rtol=0)
    torch.testing.assert_close(noise.var(0), torch.full((2, 3), 2 / torch.pi), atol=0.06, rtol=0)


def test_all_of_a_batch_has_the_same_noise_and_deviations_are_trained():
    layer = NoisyLinear(3, 2)
    out = layer(torch.ones(5, 3))
    assert torch.equal(out[0].expand(5, 2), out)
    out.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in layer.parameters())


def test_initial_weights_are_the_papers():
    layer = NoisyLinear(16, 50, sigma=0.4)
    assert layer.weight.abs().max() <= 0.25
    assert layer.weight.abs().max() > 0.24
    for deviation in (layer.weight_sigma, layer.bias_sigma):
        torch.testing.assert_close(deviation.detach(), torch.full_like(deviation, 0.1))
    other = fresh_copy(layer)
    assert not torch.equal(other.weight, layer.weight)
    assert torch.equal(other.weight_sigma, layer.weight_sigma)


def test_a_deterministic_policy_has_no_noise():
    network = QNetwork(mlp(4, 8, ()), head=q_head(8, 3, (8,), noisy=True))
    policy = EpsilonGreedy(network, eps_init=0.0, eps_end=0.0)
    with torch.no_grad():
        for name, value in network.named_parameters():
            if name.endswith("sigma"):
                value.fill_(3.0)
    x = torch.randn(64, 4)
    assert any(not torch.equal(policy.act(x)["action"], policy.act(x)["action"]) for _ in range(9))
    assert not network.remember(x)[0].requires_grad
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        assert torch.equal(policy.act(x)["action"], policy.act(x)["action"])
        assert torch.equal(policy.act(x)["action"], network.act(x)["action"])


def test_dueling_by_hand():
    # Of features [value, advantages]: 1 + [3, 5] - 4.
    value, advantage = nn.Linear(3, 1, bias=False), nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        value.weight.copy_(torch.tensor([[1.0, 0, 0]]))
        advantage.weight.copy_(torch.tensor([[0, 1.0, 0], [0, 0, 1.0]]))
    head = DuelingHead(value, advantage)
    assert head(torch.tensor([[1.0, 3.0, 5.0]])).tolist() == [[0.0, 2.0]]


@pytest.mark.parametrize("noisy", [False, True])
def test_dueling_and_noisy_layers_equal_torchrls(noisy, monkeypatch):
    layer = torchrl.NoisyLinear if noisy else nn.Linear
    options = {"in_features": 4, "num_cells": 5, "activation_class": nn.ReLU, "layer_class": layer}
    theirs = torchrl.DuelingMlpDQNet(2, mlp_kwargs_output=options)
    theirs.features = nn.Identity()
    ours = q_head(4, 2, (5,), dueling=True, noisy=noisy)
    mine, others = (
        [*head.value.parameters(), *head.advantage.parameters()] for head in (ours, theirs)
    )
    for parameter, other in zip(mine, others, strict=True):
        other.data.copy_(parameter)
    x = torch.randn(6, 4)

    def randn(size, **options):
        return torch.sin(torch.arange(size) + 0.3 * size)

    monkeypatch.setattr(torch, "randn", randn)
    theirs.apply(torchrl.reset_noise)
    with set_exploration_type(ExplorationType.RANDOM):  # without it theirs has no noise
        found, expected = ours(x), theirs(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found.square().sum(), mine),
        torch.autograd.grad(expected.square().sum(), others),
    )


def test_each_atom_has_a_value_and_advantages():
    head = q_head(6, 3, (5,), atoms=4, dueling=True)
    x = torch.randn(2, 7, 6)
    out = head(x).unflatten(-1, (3, 4))
    assert out.shape == (2, 7, 3, 4)
    torch.testing.assert_close(out.mean(-2), head.value(x))
    advantage = head.advantage(x).unflatten(-1, (3, 4))
    torch.testing.assert_close(out.diff(dim=-2), advantage.diff(dim=-2))
