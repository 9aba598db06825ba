"""The DQN loss: by hand, and equal to TorchRL's in value, gradient and TD error."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.objectives import DQNLoss as TorchRLLoss
from torchrl.objectives import HardUpdate as TorchRLUpdate

from hooktrainer.errors import ConfigError
from hooktrainer.networks import QNetwork, mlp
from hooktrainer.objectives import DQNLoss


def make_batch(size=32):
    terminated = torch.rand(size, 1) < 0.3
    following = TensorDict(
        observation=torch.randn(size, 4),
        reward=torch.randn(size, 1),
        done=terminated | (torch.rand(size, 1) < 0.3),
        terminated=terminated,
        batch_size=[size],
    )
    return TensorDict(
        observation=torch.randn(size, 4),
        action=torch.randint(3, (size,)),
        next=following,
        batch_size=[size],
    )


def disturb_target(ours, theirs):
    """Move both losses' target networks away from the network, to the same place."""
    for name, buffer in ours.target_value_network.named_buffers():
        buffer += 0.3 * torch.randn_like(buffer)
        theirs.target_value_network_params.get(tuple(name.split("."))).copy_(buffer)


@pytest.mark.parametrize("optional", [None, "priority_weight", "steps_to_next_obs"])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"double_dqn": True}, {"delay_value": False, "loss_function": "smooth_l1"}],
    ids=str,
)
def test_equals_torchrls(arguments, optional):
    network, batch = QNetwork(mlp(4, 3)), make_batch()
    if optional == "priority_weight":
        batch[optional] = torch.rand(32)
    if optional == "steps_to_next_obs":
        batch[optional] = torch.randint(1, 4, (32, 1))
    ours = DQNLoss(network, gamma=0.9, **arguments)
    theirs = TorchRLLoss(network, action_space="categorical", **arguments)
    theirs.make_value_estimator(gamma=0.9)
    if arguments.get("delay_value", True):
        TorchRLUpdate(theirs)  # or it warns that there is none
        disturb_target(ours, theirs)
    our_batch, their_batch = batch.clone(), batch.clone()
    our_loss, their_loss = ours(our_batch)["loss"], theirs(their_batch)["loss"]
    torch.testing.assert_close(our_loss, their_loss)
    torch.testing.assert_close(our_batch["td_error"], their_batch["td_error"])
    parameters = list(network.parameters())
    for mine, other in zip(
        torch.autograd.grad(our_loss, parameters),
        torch.autograd.grad(their_loss, parameters),
        strict=True,
    ):
        torch.testing.assert_close(mine, other)


def batch_by_hand():
    # The network is the identity: an observation is the values of two actions.
    return TensorDict(
        observation=torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        action=torch.tensor([1, 0]),
        next=TensorDict(
            observation=torch.tensor([[5.0, 6.0], [7.0, 8.0]]),
            reward=torch.tensor([[1.0], [2.0]]),
            terminated=torch.tensor([[False], [True]]),
            batch_size=[2],
        ),
        batch_size=[2],
    )


@pytest.mark.parametrize("one_hot", [None, torch.int64, torch.bool, torch.float32])
@pytest.mark.parametrize("own", [True, False], ids=["QNetwork", "TensorDictModule"])
def test_by_hand(one_hot, own):
    # Targets: 1 + 0.5 * 6 = 4, and 2 (terminal). Errors: 2 - 4 = -2, and 3 - 2 = 1.
    batch = batch_by_hand()
    if one_hot is not None:
        batch["action"] = nn.functional.one_hot(batch["action"], 2).to(one_hot)
    module = TensorDictModule(nn.Identity(), ["observation"], ["action_value"])
    losses = DQNLoss(QNetwork(nn.Identity()) if own else module, gamma=0.5)(batch)
    assert losses["loss"].item() == 2.5
    assert batch["td_error"].tolist() == [[4.0], [1.0]]


def test_double_dqn_needs_a_target():
    with pytest.raises(ConfigError, match="delay_value=True"):
        DQNLoss(QNetwork(mlp(4, 3)), double_dqn=True, delay_value=False)
