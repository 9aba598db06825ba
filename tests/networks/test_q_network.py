from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from hooktrainer.errors import ConfigError
from hooktrainer.networks import EpsilonGreedy, QNetwork, ValueNetwork, mlp


def test_q_network_writes_torchrls_entries():
    network = QNetwork(mlp(4, 3))
    batch = network(TensorDict(observation=torch.randn(5, 4), batch_size=[5]))
    assert batch["action_value"].shape == (5, 3)
    assert torch.equal(batch["action"], batch["action_value"].argmax(-1))
    assert torch.equal(batch["chosen_action_value"], batch["action_value"].max(-1, True).values)
    assert torch.equal(network.act(batch["observation"])["action"], batch["action"])


def test_epsilon_falls_linearly_and_is_saved():
    policy = EpsilonGreedy(QNetwork(mlp(4, 2)), eps_init=1.0, eps_end=0.2, annealing_num_steps=100)
    assert policy.eps == 1.0
    policy.step(25)
    assert policy.eps == pytest.approx(0.8)
    twin = EpsilonGreedy(QNetwork(mlp(4, 2)), eps_init=1.0, eps_end=0.2, annealing_num_steps=100)
    twin.load_state_dict(policy.state_dict())
    assert twin.eps == policy.eps
    policy.step(1000)
    assert policy.eps == pytest.approx(0.2)


def test_epsilon_is_the_share_of_random_actions():
    policy = EpsilonGreedy(QNetwork(nn.Identity()), eps_init=0.4, eps_end=0.4)
    values = torch.tensor([0.0, 1.0, 0.0, 0.0]).expand(20_000, 4)
    torch.manual_seed(0)
    frequencies = torch.bincount(policy.act(values)["action"], minlength=4) / 20_000
    torch.testing.assert_close(frequencies, torch.tensor([0.1, 0.7, 0.1, 0.1]), atol=0.01, rtol=0)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        batch = policy(TensorDict(observation=values, batch_size=[20_000]))
    assert (batch["action"] == 1).all()
    assert batch["action"].dtype == torch.int64


@pytest.mark.parametrize("epsilons", [(0.1, 0.5), (1.5, 0.1), (0.5, -0.1)])
def test_impossible_epsilons_are_refused(epsilons):
    with pytest.raises(ConfigError, match="eps"):
        EpsilonGreedy(QNetwork(mlp(4, 2)), *epsilons)


def test_annealing_over_no_steps_is_refused():
    with pytest.raises(ConfigError, match="annealing_num_steps=0"):
        EpsilonGreedy(QNetwork(mlp(4, 2)), annealing_num_steps=0)


def test_value_network_keys_depend_on_what_it_reads():
    assert ValueNetwork(mlp(4, 1)).out_keys == ["state_value"]
    network = ValueNetwork(mlp(5, 1), in_keys=["observation", "action"])
    assert network.out_keys == ["state_action_value"]
    inputs = torch.randn(3, 4), torch.randn(3, 1)
    batch = TensorDict(observation=inputs[0], action=inputs[1], batch_size=[3])
    torch.testing.assert_close(network(batch)["state_action_value"], network.remember(*inputs)[0])
    assert network.evaluate(*inputs).requires_grad
    assert not network.remember(*inputs)[0].requires_grad
