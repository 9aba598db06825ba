"""The CQL loss: SAC's and a penalty, checked against an integral and against TorchRL."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from off_policy import make_batch, make_critics, trained_by
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.objectives import CQLLoss as TorchRLLoss
from torchrl.objectives import SoftUpdate as TorchRLUpdate

from hooktrainer.errors import ConfigError
from hooktrainer.networks import TanhGaussianPolicy, mlp
from hooktrainer.objectives import CQLLoss, SACLoss


def make_actor(**bounds):
    return TanhGaussianPolicy(mlp(3, 4), 2, **bounds)


def test_all_but_the_penalty_equals_torchrls():
    actor, critics, batch = make_actor(), make_critics(), make_batch()
    theirs = TorchRLLoss(actor, copy.deepcopy(critics), target_entropy=-2.0)
    theirs.make_value_estimator(gamma=0.9)
    TorchRLUpdate(theirs, tau=0.1)  # or it warns that there is none
    ours = CQLLoss(actor, critics, gamma=0.9)
    torch.manual_seed(1)
    value = ours(batch.clone())["loss_qvalue"]
    torch.manual_seed(1)
    torch.testing.assert_close(value, theirs.q_loss(batch.clone())[0], atol=1e-4, rtol=1e-4)
    entries = ours.read(batch)
    torch.manual_seed(1)
    policy_loss = ours._policy_losses(entries, torch.tensor(1.0))["loss_actor"]
    torch.manual_seed(1)
    torch.testing.assert_close(
        policy_loss, theirs.actor_loss(batch.clone())[0], atol=1e-4, rtol=1e-4
    )


def test_the_penalty_is_the_integral_over_the_box_less_the_value_of_the_data():
    class FirstFeature(nn.Module):
        def forward(self, observation, action):
            return 2.0 * action[..., :1]

    critic = TensorDictModule(
        FirstFeature(), in_keys=["observation", "action"], out_keys=["state_action_value"]
    )
    actor = make_actor(low=-3.0, high=[3.0, 5.0])
    batch = make_batch(16)
    loss = CQLLoss(actor, [critic, critic], num_random=4000, min_q_weight=0.5)
    penalty = loss(batch)["loss_cql"]
    # The integral of exp(2 a) over [-3, 3], times the width 8 of the other feature; each source
    # estimates it with 4000 samples, and the three sums are not averaged.
    integral = math.log((math.exp(6) - math.exp(-6)) / 2 * 8 * 3 * 4000)
    per_network = integral - 2.0 * batch["action"][:, 0].mean()
    torch.testing.assert_close(penalty, 0.5 * 2 * per_network, atol=0.1, rtol=0.0)


def test_the_penalty_trains_the_q_functions_only_and_lowers_unseen_actions():
    loss = CQLLoss(make_actor(), make_critics())
    assert trained_by(loss, "loss_cql") == {"qvalue_network"}
    batch = make_batch()
    before = loss(batch.clone())["loss_cql"].item()
    optimizer = torch.optim.Adam(loss.qvalue_network.parameters(), lr=1e-2)
    for _ in range(20):
        loss(batch.clone())["loss_cql"].backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss(batch)["loss_cql"].item() < before - 1.0


def test_without_penalty_and_with_entropy_it_is_sac():
    actor, critics, batch = make_actor(), make_critics(), make_batch()
    cql = CQLLoss(actor, critics, min_q_weight=0.0, deterministic_backup=False)
    torch.manual_seed(1)
    ours = cql(batch.clone())
    torch.manual_seed(1)
    theirs = SACLoss(actor, critics)(batch.clone())
    torch.testing.assert_close(ours["loss_qvalue"], theirs["loss_qvalue"])
    assert ours["loss_cql"] == 0.0
    assert set(ours.keys()) == {*theirs.keys(), "loss_cql"}


@pytest.mark.slow
def test_compiled_equals_eager():
    networks, batch = (make_actor(), make_critics()), make_batch()
    eager, compiled = CQLLoss(*networks), CQLLoss(*networks)
    compiled.losses = torch.compile(compiled.losses, backend="aot_eager", fullgraph=True)
    torch.manual_seed(1)
    expected = eager(batch.clone())
    torch.manual_seed(1)
    torch.testing.assert_close(compiled(batch)["loss_cql"], expected["loss_cql"])


@pytest.mark.parametrize(
    "arguments", [{"num_random": 0}, {"temperature": 0.0}, {"min_q_weight": -1.0}], ids=str
)
def test_refuses_what_cannot_work(arguments):
    with pytest.raises(ConfigError, match="num_random"):
        CQLLoss(make_actor(), make_critics(), **arguments)


def test_a_missing_entry_is_named():
    batch = make_batch()
    del batch["action"]
    with pytest.raises(KeyError, match="action"):
        CQLLoss(make_actor(), make_critics())(TensorDict(batch, batch_size=[32]))
