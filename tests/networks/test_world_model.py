"""World models: numbers of any scale, latents, and sequences that equal acting step by step."""

from __future__ import annotations

import math

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import SymExpTwoHot
from torchrl.modules import functional as theirs

from hooktrainer.errors import ConfigError
from hooktrainer.networks import CategoricalPolicy, TwoHot, WorldModel, WorldModelPolicy, mlp
from hooktrainer.networks.world_model import RECURRENT, symexp, symlog

E = math.e


def test_symlog_by_hand_and_as_torchrls():
    x = torch.tensor([0.0, E - 1, 1 - E**2, 99.0])
    torch.testing.assert_close(symlog(x), torch.tensor([0.0, 1.0, -2.0, math.log(100)]))
    x = torch.randn(50) * 1e4
    torch.testing.assert_close(symexp(symlog(x)), x)
    torch.testing.assert_close(symlog(x), theirs.symlog(x))
    torch.testing.assert_close(symexp(x / 1e4), theirs.symexp(x / 1e4))


def test_numbers_are_shared_by_the_bins_next_to_them():
    two_hot = TwoHot(5, largest=2.0)
    bins = [1 - E**2, 1 - E, 0.0, E - 1, E**2 - 1]
    torch.testing.assert_close(two_hot.bins, torch.tensor(bins))
    log_probs = torch.tensor([0.1, 0.2, 0.4, 0.2, 0.1]).log()
    # A quarter of the way from 0 to the next bin, a bin, and beyond the last.
    target = torch.tensor([(E - 1) / 4, 1 - E, 1e6])
    by_hand = [-0.75 * math.log(0.4) - 0.25 * math.log(0.2), -math.log(0.2), -math.log(0.1)]
    found = two_hot.cross_entropy(log_probs.expand(3, 5), target)
    torch.testing.assert_close(found, torch.tensor(by_hand))
    quarter = torch.tensor([0.0, 0.0, 0.75, 0.25, 0.0]).log()
    assert two_hot.mean(quarter).item() == pytest.approx((E - 1) / 4)


def test_distributions_of_numbers_equal_torchrls():
    ours, torchrls = TwoHot(255), SymExpTwoHot(255)
    torch.testing.assert_close(ours.bins, torchrls.bins)
    logits = torch.randn(64, 255, requires_grad=True)
    target = torch.randn(64) * torch.logspace(-3, 9, 64)  # some of them beyond the bins
    loss, expected = ours.cross_entropy(logits, target), torchrls.loss(logits, target)
    torch.testing.assert_close(loss, expected)
    for one, other in zip(
        torch.autograd.grad(loss.sum(), logits),
        torch.autograd.grad(expected.sum(), logits),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(ours.mean(logits), torchrls.decode(logits))
    assert ours.mean(torch.zeros(3, 255)).tolist() == [0.0] * 3  # exactly


@pytest.mark.parametrize("number", [1, 4])
def test_bins_are_an_odd_number(number):
    with pytest.raises(ConfigError, match=f"num_bins={number} must be odd"):
        TwoHot(number)


def make_world() -> WorldModel:
    torch.manual_seed(0)
    return WorldModel(
        nn.Identity(),
        3,
        3,
        2,
        lambda inputs, outputs: mlp(inputs, outputs, (8,), nn.SiLU),
        recurrent_size=6,
        groups=3,
        classes=4,
    )


def test_a_hundredth_of_the_probability_is_uniform():
    world = make_world()
    embedded, recurrent = torch.randn(5, 6), torch.randn(5, 6)
    logits = world.posterior_network(torch.cat([recurrent, embedded], -1)).view(5, 3, 4)
    probability = world.posterior(recurrent, embedded).exp()
    torch.testing.assert_close(probability, 0.99 * logits.softmax(-1) + 0.01 / 4)
    torch.testing.assert_close(probability.sum(-1), torch.ones(5, 3))
    for parameter in world.prior_network.parameters():
        parameter.data *= 1e3
    prior = world.prior(recurrent).exp()
    assert prior.amin().item() == pytest.approx(0.0025)
    assert prior.amax().item() == pytest.approx(0.9925)


def test_latents_are_drawn_by_their_probabilities_and_have_their_gradient():
    world = make_world()
    probability = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.25] * 4])
    log_probs = probability.log().requires_grad_()
    drawn = world.draw(log_probs.expand(20_000, 3, 4))
    rows = drawn.detach().view(-1, 3, 4)
    torch.testing.assert_close(rows.sum(-1), torch.ones(20_000, 3))
    torch.testing.assert_close(rows.mean(0), probability, atol=0.015, rtol=0)
    weights = torch.randn(12)
    (grad,) = torch.autograd.grad(world.draw(log_probs) @ weights, log_probs)
    torch.testing.assert_close(grad, weights.view(3, 4) * probability)
    most_likely = world.draw(log_probs.detach()[:2], deterministic=True)
    assert most_likely.tolist() == [0, 0, 0, 1, 1, 0, 0, 0]


def test_sequences_have_the_states_of_acting_step_by_step(monkeypatch):
    """Latents are the most likely ones, so that nothing is random; one episode begins within."""
    world = make_world()
    policy = WorldModelPolicy(world, CategoricalPolicy(mlp(18, 2, (4,)), out_keys=["action"]))
    policy.policy.distribution.mask_size = 2
    observation = torch.randn(4, 7, 3)
    is_init = torch.zeros(4, 7, 1, dtype=torch.bool)
    is_init[0, 0] = is_init[1, 3] = True
    first = torch.randn(4, 6)
    data = TensorDict({RECURRENT: first}, [4])
    states, actions = [], []
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        for t in range(7):
            data["observation"], data["is_init"] = observation[:, t], is_init[:, t]
            policy(data)
            data[RECURRENT] = data.get(("next", *RECURRENT))
            states.append(data[RECURRENT])
            actions.append(data["action"])
    draw = world.draw
    monkeypatch.setattr(world, "draw", lambda log_probs: draw(log_probs, deterministic=True))
    taken = policy.policy.encoded(torch.stack(actions, 1))
    seen = world.observe(world.embed(observation), taken, is_init, first)
    torch.testing.assert_close(seen.following, torch.stack(states, 1))
    squeezed = observation.sign() * torch.log(1 + observation.abs())
    torch.testing.assert_close(world.embed(observation), world.embedding(squeezed))
    assert not seen.recurrent[0, 0].any()
    assert not seen.recurrent[1, 3].any()
    torch.testing.assert_close(seen.recurrent[2:, 0], first[2:])
    torch.testing.assert_close(seen.recurrent[2:, 1:], seen.following[2:, :-1])
    by_step = world.posterior(seen.recurrent, world.embed(observation))
    torch.testing.assert_close(seen.posterior, by_step)
    torch.testing.assert_close(seen.latent, draw(by_step, deterministic=True))
