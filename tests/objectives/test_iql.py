"""The IQL loss: equal to TorchRL's, and to numbers worked out by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from off_policy import assert_equal_gradients, make_batch, make_critics, total, trained_by
from torchrl.objectives import IQLLoss as TorchRLLoss
from torchrl.objectives import SoftUpdate as TorchRLUpdate

from hooktrainer.errors import ConfigError
from hooktrainer.networks import DiagonalGaussianPolicy, TanhGaussianPolicy, ValueNetwork, mlp
from hooktrainer.objectives import IQLLoss


def make_networks():
    return DiagonalGaussianPolicy(mlp(3, 2), 2), make_critics(), ValueNetwork(mlp(3, 1))


@pytest.mark.parametrize(
    "arguments",
    [{}, {"loss_function": "l2", "temperature": 3.0, "expectile": 0.8, "reduction": "sum"}],
    ids=str,
)
@pytest.mark.parametrize("squashed", [False, True])
def test_equals_torchrls(arguments, squashed):
    actor, critics, value = make_networks()
    if squashed:  # which has no log_prob_and_entropy, but TorchRL's get_dist
        actor = TanhGaussianPolicy(mlp(3, 4), 2)
    batch = make_batch()
    theirs = TorchRLLoss(*(copy.deepcopy(part) for part in (actor, critics, value)), **arguments)
    theirs.make_value_estimator(gamma=0.9)
    TorchRLUpdate(theirs, tau=0.1)  # or it warns that there is none
    ours = IQLLoss(actor, critics, value, gamma=0.9, **arguments)
    our_losses = ours(our_batch := batch.clone())
    their_losses = theirs(their_batch := batch.clone())
    assert set(our_losses.keys()) == set(their_losses.keys())
    for key, expected in their_losses.items():
        torch.testing.assert_close(our_losses[key], expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(our_batch["td_error"], their_batch["td_error"])

    total(our_losses).backward()
    total(their_losses).backward()
    names = {
        "actor_network": "actor_network_params",
        "qvalue_network": "qvalue_network_params",
        "value_network": "value_network_params",
    }
    assert_equal_gradients(ours, theirs, names)


def test_each_loss_reaches_its_own_parameters_only():
    loss = IQLLoss(*make_networks())
    for name in ("actor", "qvalue", "value"):
        assert trained_by(loss, f"loss_{name}") == {f"{name}_network"}


def test_priority_weights_count():
    loss, batch = IQLLoss(*make_networks()), make_batch(2)
    first = loss(batch[:1].clone())["loss_value"]
    batch["priority_weight"] = torch.tensor([1.0, 0.0])
    torch.testing.assert_close(loss(batch)["loss_value"], first)


@pytest.mark.parametrize("arguments", [{"expectile": 1.0}, {"temperature": -1.0}], ids=str)
def test_refuses_what_cannot_work(arguments):
    with pytest.raises(ConfigError, match=r"expectile.*temperature"):
        IQLLoss(*make_networks(), **arguments)
