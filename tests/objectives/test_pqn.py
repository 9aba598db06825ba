"""Q(lambda) returns by hand and by a loop, and the loss of parallelized Q-learning."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from hooktrainer.networks import QNetwork, ValueNetwork, add_layer_norms, mlp, small_cnn
from hooktrainer.objectives import GAE, PQNLoss, QLambda, q_lambda_return


def flags(*values: int) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.bool).unsqueeze(-1)


def test_returns_by_hand():
    reward = torch.tensor([[1.0, 2.0, 4.0, 8.0]]).unsqueeze(-1)
    value = torch.tensor([[10.0, 20.0, 30.0, 40.0]]).unsqueeze(-1)  # of what follows
    never = flags(0, 0, 0, 0)
    returns = q_lambda_return(0.5, 0.5, value, reward, never, never)
    last = 8 + 0.5 * 40
    third = 4 + 0.5 * (0.5 * 30 + 0.5 * last)
    second = 2 + 0.5 * (0.5 * 20 + 0.5 * third)
    first = 1 + 0.5 * (0.5 * 10 + 0.5 * second)
    assert returns.flatten().tolist() == pytest.approx([first, second, third, last])
    # The second step is truncated, the third is terminal.
    returns = q_lambda_return(0.5, 0.5, value, reward, flags(0, 1, 1, 0), flags(0, 0, 1, 0))
    second = 2 + 0.5 * 20
    first = 1 + 0.5 * (0.5 * 10 + 0.5 * second)
    assert returns.flatten().tolist() == pytest.approx([first, second, 4.0, last])


@pytest.mark.parametrize("lmbda", [0.0, 0.65, 1.0])
def test_returns_equal_a_loop_and_those_of_gae(lmbda):
    torch.manual_seed(0)
    shape, gamma = (5, 23, 1), 0.9
    reward, value = torch.randn(2, *shape, dtype=torch.float64)
    done = torch.rand(shape) < 0.2
    terminated = done & (torch.rand(shape) < 0.5)
    value[terminated] = torch.nan  # a terminal observation has no value
    returns = q_lambda_return(gamma, lmbda, value, reward, done, terminated)
    for env in range(5):
        later = None
        for t in reversed(range(23)):
            then = 0.0 if terminated[env, t] else value[env, t, 0]
            if later is not None and not done[env, t]:
                then = (1 - lmbda) * then + lmbda * later
            later = reward[env, t, 0] + gamma * then
            torch.testing.assert_close(returns[env, t, 0], later)


def make_batch(features: int = 2) -> TensorDict:
    """Two environments; the first is truncated after two steps of four."""
    torch.manual_seed(0)
    observation = torch.randn(2, 4, features)
    following = torch.cat([observation[:, 1:], torch.randn(2, 1, features)], 1)
    following[0, 1] = 7.0  # the true final observation
    done = torch.zeros(2, 4, 1, dtype=torch.bool)
    done[0, 1] = True
    after = {"observation": following, "reward": torch.randn(2, 4, 1), "done": done}
    after["terminated"] = torch.zeros_like(done)
    action = torch.tensor([[0, 1, 1, 0], [1, 1, 0, 0]])
    return TensorDict({"observation": observation, "action": action, "next": after}, [2, 4])


def test_it_writes_returns_of_the_best_next_actions():
    network, batch = QNetwork(nn.Identity()), make_batch()  # an observation is two values
    q_lambda = QLambda(gamma=0.9, lmbda=0.5, value_network=network)
    assert q_lambda(batch) is batch
    following = batch["next"]
    expected = q_lambda_return(
        *(0.9, 0.5, following["observation"].amax(-1, keepdim=True)),
        *(following[key] for key in ("reward", "done", "terminated")),
    )
    torch.testing.assert_close(batch["value_target"], expected)
    best = batch["observation"].amax(-1, keepdim=True)
    torch.testing.assert_close(batch["advantage"], expected - best)


def test_with_one_action_it_is_the_value_target_of_gae():
    network = mlp(2, 1, (8,))
    ours, theirs = make_batch(), make_batch()
    QLambda(gamma=0.9, lmbda=0.7, value_network=QNetwork(network))(ours)
    GAE(gamma=0.9, lmbda=0.7, value_network=ValueNetwork(network))(theirs)
    # GAE's last step has no later return either.
    torch.testing.assert_close(ours["value_target"], theirs["value_target"])


@pytest.mark.parametrize("shape", [(8,), (2, 4)])
def test_the_loss_by_hand(shape):
    batch = make_batch().reshape(shape)
    batch["value_target"] = torch.zeros(*shape, 1)
    values = batch["observation"].reshape(8, 2)
    chosen = values[torch.arange(8), batch["action"].flatten()]
    loss = PQNLoss(QNetwork(nn.Identity()))
    losses = loss(batch)
    torch.testing.assert_close(losses["loss"], chosen.square().mean())
    torch.testing.assert_close(losses["action_value"], chosen.mean())
    assert not [name for name, _ in loss.named_children() if name.startswith("target")]
    with pytest.raises(KeyError, match="QLambda"):
        loss(make_batch())


def test_hidden_layers_are_normalized():
    network = add_layer_norms(mlp(3, 2, (5, 4)))
    names = [type(layer).__name__ for layer in network]
    assert names == ["Linear", "LayerNorm", "Tanh"] * 2 + ["Linear"]
    hidden = network[:2](100 * torch.randn(6, 3))
    torch.testing.assert_close(hidden.mean(-1), torch.zeros(6), atol=1e-5, rtol=0)
    convolutions = add_layer_norms(small_cnn(2))
    assert [type(layer).__name__ for layer in convolutions] == ["Conv2d", "GroupNorm", "ReLU"] * 2
    planes = convolutions[:2](torch.randn(3, 2, 8, 8))
    torch.testing.assert_close(planes.mean((1, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
