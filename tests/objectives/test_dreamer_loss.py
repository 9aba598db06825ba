"""The losses of DreamerV3: every piece by hand and as TorchRL's, and gradients that do not leak."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.modules.value_norm import PercentileValueNorm
from torchrl.objectives import DreamerV3ActorLoss
from torchrl.objectives.dreamer_v3 import categorical_kl_terms

from hooktrainer.networks import (
    CategoricalPolicy,
    TanhGaussianPolicy,
    TwoHot,
    WorldModel,
    WorldModelPolicy,
    mlp,
)
from hooktrainer.networks.world_model import RECURRENT, symlog
from hooktrainer.objectives import DreamerLoss
from hooktrainer.objectives.dreamer import (
    Imagined,
    divergence,
    kl_loss,
    lambda_returns,
    range_of,
)

SEQUENCES, TIME, FEATURES, BINS = 4, 6, 6 + 3 * 4, 21


def make_loss(continuous: bool = False, **options: Any) -> DreamerLoss:
    torch.manual_seed(0)
    world = WorldModel(
        nn.Linear(3, 5),
        5,
        3,
        2,
        lambda inputs, outputs: mlp(inputs, outputs, (8,), nn.SiLU),
        recurrent_size=6,
        groups=3,
        classes=4,
        two_hot=TwoHot(BINS, largest=3.0),
    )
    if continuous:
        policy: Any = TanhGaussianPolicy(mlp(FEATURES, 4, (8,)), 2)
    else:
        policy = CategoricalPolicy(mlp(FEATURES, 2, (8,)), out_keys=["action"])
        policy.distribution.mask_size = 2
    values = mlp(FEATURES, BINS, (8,), nn.SiLU)
    return DreamerLoss(WorldModelPolicy(world, policy), values, nn.Identity(), horizon=5, **options)


def perturb(loss: DreamerLoss) -> None:
    """Change all parameters, some of which are 0."""
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def make_batch(continuous: bool = False) -> TensorDict:
    generator = torch.Generator().manual_seed(1)
    rand = lambda *shape: torch.randn(SEQUENCES, TIME, *shape, generator=generator)  # noqa: E731
    terminated = torch.rand(SEQUENCES, TIME, 1, generator=generator) < 0.2
    is_init = torch.zeros_like(terminated)
    is_init[:, 1:] = terminated[:, :-1]
    action = rand(2).tanh() if continuous else rand().gt(0).long()
    batch = TensorDict(
        {
            "observation": rand(3) * 10,
            "is_init": is_init,
            "action": action,
            "next": {"reward": rand(1), "terminated": terminated},
        },
        [SEQUENCES],
    )
    return batch.set(RECURRENT, torch.randn(SEQUENCES, 1, 6, generator=generator).tanh())


def test_the_divergence_by_hand():
    p, q = torch.tensor([[0.5, 0.5], [0.9, 0.1]]), torch.tensor([[0.25, 0.75], [0.9, 0.1]])
    expected = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert divergence(p.log(), q.log()).item() == pytest.approx(expected)
    # Above the free nats it counts by both weights, below them they are a constant.
    assert kl_loss(p.log(), q.log(), 0.1, (1.0, 0.1)).item() == pytest.approx(1.1 * expected)
    assert kl_loss(p.log(), q.log(), 1.0, (1.0, 0.1)).item() == pytest.approx(1.1)


@pytest.mark.parametrize("free_nats", [0.0, 1.0, 2.0])
def test_the_balanced_divergence_equals_torchrls(free_nats):
    logits = [torch.randn(40, 3, 4, requires_grad=True) for _ in range(2)]
    mixed = [torch.log(0.99 * each.softmax(-1) + 0.0025) for each in logits]
    ours = kl_loss(*mixed, free_nats, (1.0, 0.1)).mean()
    dynamics, representation = categorical_kl_terms(*logits, free_nats)
    expected = dynamics + 0.1 * representation
    torch.testing.assert_close(ours, expected)
    ours_grad, expected_grad = (torch.autograd.grad(each, logits) for each in (ours, expected))
    for one, other in zip(ours_grad, expected_grad, strict=True):
        torch.testing.assert_close(one, other)
        assert one.any()


def test_lambda_returns_by_hand_and_as_torchrls():
    reward, discount = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.0, 0.8])
    following = torch.tensor([10.0, 20.0, 30.0])
    last = 3 + 0.8 * 30
    middle = 2.0  # where the episode ends nothing follows
    first = 1 + 0.5 * (0.1 * 10 + 0.9 * middle)
    found = lambda_returns(reward, discount, following, 0.9)
    torch.testing.assert_close(found, torch.tensor([first, middle, last]))

    reward, following = torch.randn(2, 15, 7, 1)
    continues = torch.rand(15, 7, 1)
    rates = SimpleNamespace(gamma=torch.tensor(0.97), lmbda=torch.tensor(0.8))
    theirs = DreamerV3ActorLoss.lambda_target(
        SimpleNamespace(value_estimator=rates),
        *(each.transpose(0, 1) for each in (reward, following, continues)),
    ).transpose(0, 1)
    torch.testing.assert_close(lambda_returns(reward, 0.97 * continues, following, 0.8), theirs)


def test_the_range_of_returns_by_hand_and_as_torchrls():
    assert range_of(torch.arange(101.0).view(1, 101)[:, torch.randperm(101)]) == 90.0
    loss, theirs = make_loss(), PercentileValueNorm()
    assert loss.return_range == 0.0
    state, last = torch.zeros(5, 64, FEATURES), torch.zeros(64, FEATURES)
    action = torch.zeros(5, 64, dtype=torch.int64)
    for scale in (300.0, 1.0, 50.0):
        reward = scale * torch.randn(5, 64)
        # Nothing is discounted to 0, so returns are rewards.
        loss._behavior(Imagined(state, action, reward, torch.zeros(5, 64), last))
        theirs.update(reward.view(-1, 1))
        torch.testing.assert_close(loss.return_range.clamp_min(1.0), theirs.scale()[0])
    assert loss.return_range > 5
    before = loss.return_range.clone()
    loss.eval()._behavior(Imagined(state, action, reward, torch.zeros(5, 64), last))
    assert loss.return_range == before


@pytest.mark.parametrize(("return_range", "divisor"), [(4.0, 4.0), (0.5, 1.0)])
def test_the_losses_of_behavior_by_hand(return_range, divisor):
    """Of one imagined trajectory of two steps, that goes on with a half and a quarter."""
    loss = make_loss(gamma=0.9, lmbda=0.5, entropy_coeff=0.1, regularizer=0.25)
    loss.return_range = return_range
    loss.decay = 1.0
    with torch.no_grad():
        for buffer in loss.target_value_network.buffers():
            buffer.add_(0.1)
    state, last = torch.randn(2, 1, FEATURES), torch.randn(1, FEATURES)
    action, reward = torch.tensor([[0], [1]]), torch.tensor([[1.0], [-2.0]])
    out = loss._behavior(Imagined(state, action, reward, torch.tensor([[0.5], [0.25]]), last))

    values, bins = loss.value_network, loss.world.two_hot.bins
    v0, v1, v2 = (values(s[0]).softmax(-1) @ bins for s in (state[0], state[1], last))
    r1 = -2.0 + 0.9 * 0.25 * v2
    r0 = 1.0 + 0.9 * 0.5 * (0.5 * v1 + 0.5 * r1)
    actor = value = 0.0
    for weight, s, a, r, v in ((1.0, state[0], 0, r0, v0), (0.9 * 0.5, state[1], 1, r1, v1)):
        probs = loss.actor_network.policy.network(s[0]).softmax(-1)
        entropy = -(probs * probs.log()).sum()
        actor = actor - weight * (probs[a].log() * (r - v) / divisor + 0.1 * entropy) / 2
        slow = loss.target_value_network(s[0]).softmax(-1) @ bins
        log_probs = values(s[0]).log_softmax(-1)
        for target, share in ((r, 1.0), (slow, 0.25)):
            hats = torch.zeros(BINS)
            above = int((bins < target).sum())
            hats[above] = (target - bins[above - 1]) / (bins[above] - bins[above - 1])
            hats[above - 1] = 1 - hats[above]
            value = value - share * weight * (hats * log_probs).sum() / 2
    torch.testing.assert_close(out["loss_actor"], actor)
    torch.testing.assert_close(out["loss_value"], value)
    torch.testing.assert_close(out["target_value"], (r0 + r1) / 2)


def test_the_loss_of_the_model_by_hand():
    loss, batch = make_loss(free_nats=0.12), make_batch()
    perturb(loss)
    world, entries = loss.world, loss.read(make_batch())
    torch.manual_seed(5)
    out = loss.losses(entries)
    torch.manual_seed(5)
    taken = nn.functional.one_hot(batch["action"], 2).float()
    seen = world.observe(
        world.embed(batch["observation"]), taken, batch["is_init"], batch[RECURRENT][:, 0]
    )
    total = 0.0
    for row in range(SEQUENCES):
        for t in range(TIME):
            prior = torch.distributions.Categorical(logits=world.prior(seen.recurrent[row, t]))
            posterior = torch.distributions.Categorical(logits=seen.posterior[row, t])
            kl = torch.distributions.kl_divergence(posterior, prior).sum()
            state = torch.cat([seen.recurrent[row, t], seen.latent[row, t]])
            error = world.decoder(state) - symlog(batch["observation"][row, t])
            chance = world.continue_network(seen.following[row, t]).sigmoid()
            ends = batch["next", "terminated"][row, t]
            bins = world.reward_network(seen.following[row, t])
            reward = batch["next", "reward"][row, t, 0]
            total += 1.1 * max(kl.item(), 0.12) + 0.5 * error.square().sum().item()
            total -= torch.log(1 - chance if ends else chance).item()
            total += world.two_hot.cross_entropy(bins, reward).item()
    assert out["loss_model"].item() == pytest.approx(total / SEQUENCES / TIME, rel=1e-4)
    # The prior learns from its own divergence alone, which counts fully.
    own = kl_loss(seen.posterior, world.prior(seen.recurrent), 0.12, (1.0, 0.0)).mean()
    for parameter in world.prior_network.parameters():
        torch.testing.assert_close(
            torch.autograd.grad(out["loss_model"], parameter, retain_graph=True),
            torch.autograd.grad(own, parameter, retain_graph=True),
        )


@pytest.mark.parametrize("continuous", [False, True])
def test_no_gradient_leaks(continuous):
    loss, batch = make_loss(continuous, free_nats=0.0), make_batch(continuous)
    perturb(loss)
    out, actor = loss(batch), loss.actor_network
    trains = {
        "loss_model": actor.world,
        "loss_actor": actor.policy,
        "loss_value": loss.value_network,
    }
    assert {key for key in out.sorted_keys if key.startswith("loss")} == trains.keys()
    for key, network in trains.items():
        loss.zero_grad()
        loss(batch)[key].backward()
        own = {name for name, _ in network.named_parameters()}
        reached = {p: n for n, p in loss.named_parameters() if p.grad is not None and p.grad.any()}
        ours = {p for p in network.parameters() if p.grad is not None and p.grad.any()}
        assert len(own) == len(ours) == len(reached)


def test_imagination_follows_the_model_and_the_policy(monkeypatch):
    """With latents that are the most likely ones, and actions too, it is a loop by hand."""
    loss = make_loss()
    perturb(loss)
    world, policy = loss.world, loss.actor_network.policy
    draw = world.draw
    monkeypatch.setattr(world, "draw", lambda log_probs: draw(log_probs, deterministic=True))
    monkeypatch.setattr(policy, "sample", lambda x: {"action": policy.evaluate(x).argmax(-1)})
    recurrent, latent = torch.randn(8, 6), draw(torch.randn(8, 3, 4), deterministic=True)
    found = loss._imagine(recurrent, latent)
    for t in range(5):
        state = torch.cat([recurrent, latent], -1)
        torch.testing.assert_close(found.state[t], state)
        action = policy.network(state).argmax(-1)
        assert torch.equal(found.action[t], action)
        taken = nn.functional.one_hot(action, 2).float()
        recurrent = world.cell(world.cell_input(torch.cat([latent, taken], -1)), recurrent)
        expected = world.reward_network(recurrent).softmax(-1) @ world.two_hot.bins
        torch.testing.assert_close(found.reward[t], expected)
        chance = world.continue_network(recurrent).sigmoid()[:, 0]
        torch.testing.assert_close(found.continues[t], chance)
        latent = draw(world.prior(recurrent), deterministic=True)
    torch.testing.assert_close(found.last, torch.cat([recurrent, latent], -1))
