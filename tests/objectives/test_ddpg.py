"""The DDPG loss: equal to TorchRL's in every loss and every gradient."""

from __future__ import annotations

import copy

import pytest
import torch
from off_policy import assert_equal_gradients, make_batch, make_critics, total, trained_by
from torchrl.objectives import DDPGLoss as TorchRLLoss
from torchrl.objectives import SoftUpdate as TorchRLUpdate

from hooktrainer.networks import DeterministicPolicy, mlp
from hooktrainer.objectives import DDPGLoss


def make_networks():
    return DeterministicPolicy(mlp(3, 2), 2, low=-2.0, high=[2.0, 3.0]), make_critics(1)[0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "arguments", [{}, {"loss_function": "smooth_l1", "delay_actor": True}], ids=str
)
def test_equals_torchrls(arguments, weighted):
    actor, critic = make_networks()
    batch = make_batch()
    if weighted:
        batch["priority_weight"] = torch.rand(32)
    theirs = TorchRLLoss(copy.deepcopy(actor), copy.deepcopy(critic), **arguments)
    theirs.make_value_estimator(gamma=0.9)
    TorchRLUpdate(theirs, tau=0.1)  # or it warns that there is none
    ours = DDPGLoss(actor, critic, gamma=0.9, **arguments)
    our_losses = ours(our_batch := batch.clone())
    their_losses = theirs(their_batch := batch.clone())
    for key in ("loss_actor", "loss_value"):
        torch.testing.assert_close(our_losses[key], their_losses[key])
    torch.testing.assert_close(our_losses["target_value"], their_losses["target_value"].mean())
    torch.testing.assert_close(our_batch["td_error"], their_batch["td_error"])

    total(our_losses).backward()
    total(their_losses).backward()
    names = {"actor_network": "actor_network_params", "value_network": "value_network_params"}
    assert_equal_gradients(ours, theirs, names)


def test_each_loss_reaches_its_own_parameters_only():
    loss = DDPGLoss(*make_networks(), delay_actor=True)
    assert trained_by(loss, "loss_actor") == {"actor_network"}
    assert trained_by(loss, "loss_value") == {"value_network"}


@pytest.mark.slow
def test_compiled_equals_eager():
    networks, batch = make_networks(), make_batch()
    eager, compiled = DDPGLoss(*networks), DDPGLoss(*networks)
    compiled.losses = torch.compile(compiled.losses, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(batch)["loss_actor"], eager(batch)["loss_actor"])
