"""The clipped PPO loss: equal to TorchRL's in every entry and every gradient, with a dual clip."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from test_ensembles import wave
from torch import nn
from torchrl.objectives import ClipPPOLoss as TorchRLLoss

from hooktrainer.errors import ConfigError
from hooktrainer.networks import CategoricalPolicy, DiagonalGaussianPolicy, ValueNetwork, mlp
from hooktrainer.objectives import ClipPPOLoss


def make_actor(kind):
    if kind == "categorical":
        return CategoricalPolicy(mlp(4, 3))
    return DiagonalGaussianPolicy(mlp(4, 2), 2, log_std=-0.5)


def make_batch(actor, size=64):
    """A batch far enough from the policy that ratios and values are clipped, on both sides."""
    batch = actor(TensorDict(observation=torch.randn(size, 4), batch_size=[size]))
    batch["action_log_prob"] += 0.4 * torch.randn(size)
    batch["advantage"], batch["value_target"] = torch.randn(2, size, 1)
    batch["state_value"] = 0.3 * torch.randn(size, 1)
    return batch


def total(losses):
    return sum(value for key, value in losses.items() if key.startswith("loss_"))


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"clip_epsilon": 0.1, "entropy_coeff": 0.5, "critic_coeff": 0.5},
        {"normalize_advantage": True, "clip_value": True, "loss_critic_type": "l2"},
        {"clip_value": 0.1, "loss_critic_type": "l1"},
        {"clip_value": 0.3, "entropy_bonus": False},
    ],
    ids=str,
)
def test_equals_torchrls(kind, arguments):
    actor, critic = make_actor(kind), ValueNetwork(mlp(4, 1))
    batch = make_batch(actor)
    parameters = [*actor.parameters(), *critic.parameters()]
    results = []
    for loss_class in (ClipPPOLoss, TorchRLLoss):
        losses = loss_class(actor, critic, **arguments)(batch)
        results.append((losses, torch.autograd.grad(total(losses), parameters, allow_unused=True)))
    (ours, our_grads), (theirs, their_grads) = results
    assert set(ours.keys()) == set(theirs.keys())
    assert 0 < ours["clip_fraction"] < 1
    for key, value in theirs.items():
        torch.testing.assert_close(ours[key], value.squeeze(), atol=1e-5, rtol=1e-5)
    for mine, other in zip(our_grads, their_grads, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def test_dual_clip_bounds_the_loss_of_negative_advantages():
    actor = CategoricalPolicy(torch.nn.Identity())
    logits = torch.zeros(4, 2, requires_grad=True)
    batch = TensorDict(
        observation=logits,
        action=torch.zeros(4, dtype=torch.int64),
        action_log_prob=torch.tensor([0.1, 0.2, 0.1, 0.4]).log(),  # ratios 5, 2.5, 5 and 1.25
        advantage=torch.tensor([[-1.0], [-1.0], [1.0], [-1.0]]),
        batch_size=[4],
    )
    losses = ClipPPOLoss(actor, entropy_bonus=False, dual_clip=3.0)(batch)
    assert losses["loss_objective"].item() == pytest.approx((3 + 2.5 - 1.2 + 1.25) / 4)
    losses["loss_objective"].backward()
    assert logits.grad.any(-1).tolist() == [False, True, False, True]


def test_dual_clip_equals_tianshous():
    """Of Tianshou 0.5.1: ``loss/clip`` of ``PPOPolicy.learn`` on this batch, and its gradient."""
    actor = CategoricalPolicy(nn.Linear(3, 2))
    for place, parameter in enumerate(actor.parameters()):
        parameter.data = wave(parameter.shape, place)
    batch = TensorDict(
        observation=wave((24, 3)),
        action=torch.arange(24) % 2,
        action_log_prob=1.5 * wave((24,), 1.0) - 2.0,
        advantage=wave((24, 1), 2.0),
        batch_size=[24],
    )
    loss = ClipPPOLoss(actor, entropy_bonus=False, dual_clip=3.0)(batch)["loss_objective"]
    assert loss.item() == pytest.approx(0.5916299, abs=1e-6)
    loss.backward()
    first = torch.tensor([-0.0156264, -0.0562187, -0.0703704])
    torch.testing.assert_close(actor.network.weight.grad, torch.stack([first, -first]))
    torch.testing.assert_close(actor.network.bias.grad, torch.tensor([-0.0658724, 0.0658724]))


def test_the_divergence_is_kullback_and_leiblers_or_its_estimate_over_collected_rows():
    for actor in (make_actor("categorical"), make_actor("gaussian")):
        batch = make_batch(actor)
        old = actor.get_dist(batch.clone())
        for parameter in actor.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        new, counted = actor.get_dist(batch), torch.arange(64) % 2 == 0
        batch["collected"] = counted
        ratio = (new.log_prob(batch["action"]) - batch["action_log_prob"]).exp()
        estimates = ratio - 1 - ratio.log()
        loss = ClipPPOLoss(actor, kl=True)
        exact = actor.distribution.kl_keys[0] in actor.out_keys
        each = torch.distributions.kl_divergence(old, new) if exact else estimates
        torch.testing.assert_close(loss(batch)["kl"], each.mean())
        loss.set_keys(collected="collected")
        torch.testing.assert_close(loss(batch)["kl"], each[counted].mean())


def test_a_single_advantage_is_not_normalized():
    actor = make_actor("categorical")
    one = make_batch(actor, 1)
    losses = [ClipPPOLoss(actor, normalize_advantage=normalize)(one) for normalize in (True, False)]
    torch.testing.assert_close(losses[0]["loss_objective"], losses[1]["loss_objective"])


def test_diagnostics_come_at_every_nth_call_also_after_a_resume():
    actor = make_actor("categorical")
    batch, loss = make_batch(actor), ClipPPOLoss(actor, diagnostics=3)
    assert ["ESS" in loss(batch) for _ in range(5)] == [True, False, False, True, False]
    resumed = ClipPPOLoss(actor, diagnostics=3)
    resumed.load_state_dict(loss.state_dict())
    assert ["ESS" in resumed(batch) for _ in range(2)] == [False, True]


def test_a_batch_without_a_row_that_is_learned_trains_nothing():
    actor, critic = make_actor("gaussian"), ValueNetwork(mlp(4, 1))
    loss, batch = ClipPPOLoss(actor, critic), make_batch(actor, 4)
    loss.set_keys(mask="learned")
    losses = loss(batch.set("learned", torch.zeros(4, dtype=torch.bool)))
    assert total(losses).item() == 0.0
    total(losses).backward()
    assert all(p.grad.eq(0.0).all() for p in loss.parameters())


def test_a_validation_does_not_change_which_calls_have_diagnostics():
    actor = make_actor("categorical")
    batch, loss = make_batch(actor), ClipPPOLoss(actor, diagnostics=2)
    loss(batch)
    loss.eval()(batch)
    loss.train()
    assert ["ESS" in loss(batch) for _ in range(2)] == [False, True]


def test_coefficients_are_annealed_by_assignment_and_saved():
    actor = make_actor("categorical")
    loss, batch = ClipPPOLoss(actor), make_batch(actor)
    loss.clip_epsilon, loss.entropy_coeff = 0.05, 0.7
    expected = ClipPPOLoss(actor, clip_epsilon=0.05, entropy_coeff=0.7)(batch)
    restored = ClipPPOLoss(actor)
    restored.load_state_dict(loss.state_dict())
    for losses in (loss(batch), restored(batch)):
        for key, value in expected.items():
            torch.testing.assert_close(losses[key], value)


def test_a_missing_entry_is_named_with_what_writes_it():
    actor = make_actor("categorical")
    batch = make_batch(actor).exclude("advantage")
    with pytest.raises(KeyError, match=r"ClipPPOLoss needs 'advantage'.*ValueEstimatorHook"):
        ClipPPOLoss(actor)(batch)


@pytest.mark.parametrize(
    "arguments",
    [
        *({"clip_epsilon": -0.1}, {"loss_critic_type": "huber"}),
        *({"dual_clip": 1.1}, {"clip_value": -1.0}),
    ],
)
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises(ConfigError, match=str(next(iter(arguments.values())))):
        ClipPPOLoss(make_actor("categorical"), **arguments)
