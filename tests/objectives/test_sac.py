"""The SAC loss: equal to TorchRL's in every entry and every gradient, given the same noise."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from off_policy import make_batch, make_critics, total, trained_by
from torchrl.objectives import SACLoss as TorchRLLoss
from torchrl.objectives import SoftUpdate as TorchRLUpdate

from hooktrainer.errors import ConfigError
from hooktrainer.networks import TanhGaussianPolicy, mlp
from hooktrainer.objectives import SACLoss


def make_networks():
    actor = TanhGaussianPolicy(mlp(3, 4), 2, low=-2.0, high=[2.0, 3.0])
    return actor, make_critics()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "arguments", [{}, {"loss_function": "l2", "alpha_init": 0.2, "reduction": "sum"}], ids=str
)
def test_equals_torchrls(arguments, weighted):
    actor, critics = make_networks()
    batch = make_batch()
    if weighted:
        batch["priority_weight"] = torch.rand(32)
    ours = SACLoss(actor, critics, gamma=0.9, **arguments)
    theirs = TorchRLLoss(actor, copy.deepcopy(critics), target_entropy=-2.0, **arguments)
    theirs.make_value_estimator(gamma=0.9)
    TorchRLUpdate(theirs, tau=0.1)  # or it warns that there is none
    torch.manual_seed(1)
    our_losses = ours(our_batch := batch.clone())
    torch.manual_seed(1)
    their_losses = theirs(their_batch := batch.clone())
    assert set(our_losses.keys()) == set(their_losses.keys())
    for key, value in their_losses.items():
        torch.testing.assert_close(our_losses[key], value, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(our_batch["td_error"], their_batch["td_error"])

    total(our_losses).backward()
    our_grads = {name: p.grad.clone() for name, p in ours.named_parameters()}
    actor.zero_grad()
    total(their_losses).backward()
    torch.testing.assert_close(our_grads["log_alpha"], theirs.log_alpha.grad)
    for name, parameter in actor.named_parameters():
        torch.testing.assert_close(
            our_grads[f"actor_network.{name}"], parameter.grad, atol=1e-4, rtol=1e-3
        )
    for name, _ in critics[0].named_parameters():
        stacked = theirs.qvalue_network_params.get(tuple(name.split("."))).grad
        mine = torch.stack([our_grads[f"qvalue_network.{i}.{name}"] for i in range(2)])
        torch.testing.assert_close(mine, stacked, atol=1e-4, rtol=1e-3)


def test_each_loss_reaches_its_own_parameters_only():
    actor, critics = make_networks()
    loss = SACLoss(actor, critics)
    assert trained_by(loss, "loss_actor") == {"actor_network"}
    assert trained_by(loss, "loss_qvalue") == {"qvalue_network"}
    assert trained_by(loss, "loss_alpha") == {"log_alpha"}


def test_a_fixed_temperature_is_no_parameter():
    loss = SACLoss(*make_networks(), alpha_init=0.3, fixed_alpha=True)
    assert "log_alpha" not in dict(loss.named_parameters())
    assert loss(make_batch())["alpha"].item() == pytest.approx(0.3)


def test_one_q_network_becomes_several_with_weights_of_their_own():
    actor, (critic, _) = make_networks()
    loss = SACLoss(actor, critic, num_qvalue_nets=3)
    first, second, third = (q.network[0].weight for q in loss.qvalue_network)
    assert first is critic.network[0].weight
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


def test_the_target_entropy_is_minus_the_action_features_and_the_temperature_follows_it():
    loss = SACLoss(*make_networks())
    assert loss.target_entropy == -2.0
    losses = loss(make_batch())
    losses["loss_alpha"].backward()
    # d loss / d log_alpha = entropy - target: too much entropy lowers the temperature.
    expected = losses["entropy"] - loss.target_entropy
    torch.testing.assert_close(loss.log_alpha.grad, expected)
    assert math.isclose(losses["alpha"], 1.0)


@pytest.mark.slow
def test_compiled_equals_eager():
    networks, batch = make_networks(), make_batch()
    eager, compiled = SACLoss(*networks), SACLoss(*networks)
    compiled.losses = torch.compile(compiled.losses, backend="aot_eager", fullgraph=True)
    torch.manual_seed(1)
    expected = eager(batch.clone())
    torch.manual_seed(1)
    ours = compiled(batch)
    for key in ("loss_qvalue", "loss_actor"):
        torch.testing.assert_close(ours[key], expected[key])


def test_an_actor_of_unknown_size_needs_a_target_entropy():
    actor, critics = make_networks()
    del actor.action_features
    with pytest.raises(ConfigError, match="action_features"):
        SACLoss(actor, critics)
    assert SACLoss(actor, critics, target_entropy=-1.0).target_entropy == -1.0
