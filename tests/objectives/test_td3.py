"""The TD3 loss: equal to TorchRL's given the same noise, and delayed as in the paper."""

from __future__ import annotations

import copy

import pytest
import torch
from off_policy import assert_equal_gradients, make_batch, make_critics, total, trained_by
from torchrl.objectives import SoftUpdate as TorchRLUpdate
from torchrl.objectives import TD3Loss as TorchRLLoss

from hooktrainer.errors import ConfigError
from hooktrainer.networks import DeterministicPolicy, mlp
from hooktrainer.objectives import SoftUpdate, TD3Loss


def make_actor(**bounds):
    return DeterministicPolicy(mlp(3, 2), 2, **bounds)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "arguments", [{}, {"loss_function": "l2", "policy_noise": 0.8, "noise_clip": 0.3}], ids=str
)
def test_equals_torchrls(arguments, weighted):
    actor, critics, batch = make_actor(), make_critics(), make_batch()
    if weighted:
        batch["priority_weight"] = torch.rand(32)
    theirs = TorchRLLoss(
        copy.deepcopy(actor), copy.deepcopy(critics), bounds=(-1.0, 1.0), **arguments
    )
    theirs.make_value_estimator(gamma=0.9)
    TorchRLUpdate(theirs, tau=0.1)  # or it warns that there is none
    ours = TD3Loss(actor, critics, gamma=0.9, policy_delay=1, **arguments)
    torch.manual_seed(1)
    our_losses = ours(our_batch := batch.clone())
    torch.manual_seed(1)
    their_losses = theirs(their_batch := batch.clone())
    for key in ("loss_actor", "loss_qvalue"):
        torch.testing.assert_close(our_losses[key], their_losses[key])
    for key in ("pred_value", "target_value"):
        torch.testing.assert_close(our_losses[key], their_losses[key].mean())
    torch.testing.assert_close(our_batch["td_error"], their_batch["td_error"])

    total(our_losses).backward()
    total(their_losses).backward()
    names = {
        "actor_network": "actor_network_params",
        "qvalue_network": "qvalue_network_params",
    }
    assert_equal_gradients(ours, theirs, names)


def test_the_actor_is_trained_at_every_other_call_and_the_count_is_saved():
    loss = TD3Loss(make_actor(), make_critics())
    has_actor = ["loss_actor" in loss(make_batch()) for _ in range(3)]
    assert has_actor == [False, True, False]
    twin = TD3Loss(make_actor(), make_critics())
    twin.load_state_dict(loss.state_dict())
    assert "loss_actor" in twin(make_batch())


def test_each_loss_reaches_its_own_parameters_only():
    loss = TD3Loss(make_actor(), make_critics(), policy_delay=1)
    assert trained_by(loss, "loss_actor") == {"actor_network"}
    assert trained_by(loss, "loss_qvalue") == {"qvalue_network"}


def test_noise_is_measured_in_halves_of_the_box():
    batch, critics = make_batch(), make_critics()
    actor = make_actor(low=-0.01, high=0.01)
    losses = TD3Loss(actor, critics, policy_noise=100.0, noise_clip=100.0)(batch)
    plain = TD3Loss(actor, critics, policy_noise=0.0)(batch)
    # However great the noise, the action stays in its tiny box.
    torch.testing.assert_close(losses["target_value"], plain["target_value"], atol=0.05, rtol=0.0)


def test_targets_follow_both_networks():
    loss = TD3Loss(make_actor(), make_critics())
    for parameter in loss.parameters():
        parameter.data += 1.0
    SoftUpdate(loss, tau=1.0).step()
    theirs = loss.target_actor_network.network[0].weight
    assert torch.equal(loss.actor_network.network[0].weight, theirs)
    theirs = loss.target_qvalue_network[1].network[0].weight
    assert torch.equal(loss.qvalue_network[1].network[0].weight, theirs)


@pytest.mark.slow
def test_compiled_equals_eager():
    networks, batch = (make_actor(), make_critics()), make_batch()
    eager, compiled = TD3Loss(*networks), TD3Loss(*networks)
    compiled.losses = torch.compile(compiled.losses, backend="aot_eager", fullgraph=True)
    for _ in range(2):  # without and with the actor
        torch.manual_seed(1)
        expected = eager(batch.clone())
        torch.manual_seed(1)
        ours = compiled(batch.clone())
        assert set(ours.keys()) == set(expected.keys())
        for key, value in expected.items():
            torch.testing.assert_close(ours[key], value)


@pytest.mark.parametrize(
    "arguments", [{"policy_delay": 0}, {"policy_noise": -1.0}, {"num_qvalue_nets": 0}], ids=str
)
def test_refuses_what_cannot_work(arguments):
    with pytest.raises(ConfigError):
        TD3Loss(make_actor(), make_critics(1)[0], **arguments)
