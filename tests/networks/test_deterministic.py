from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from hooktrainer.errors import ConfigError
from hooktrainer.networks import (
    AdditiveGaussian,
    Box,
    DeterministicPolicy,
    PerEnvGaussian,
    mlp,
)


def test_the_policy_acts_and_evaluates_alike_within_its_box():
    policy = DeterministicPolicy(mlp(3, 2), 2, low=-1.0, high=[2.0, 5.0])
    observation = torch.randn(7, 3) * 100
    action = policy.act(observation)["action"]
    torch.testing.assert_close(action, policy.evaluate(observation).detach())
    assert (action >= policy.box.low).all()
    assert (action <= policy.box.high).all()
    batch = policy(TensorDict(observation=observation, batch_size=[7]))
    assert batch["action"].requires_grad  # TorchRL's losses differentiate it
    assert not action.requires_grad


def test_the_box_maps_zero_to_its_middle_and_infinity_to_its_edge():
    box = Box(2, low=[0.0, -4.0], high=4.0)
    assert box(torch.zeros(2)).tolist() == [2.0, 0.0]
    assert box(torch.full((2,), 1e9)).tolist() == [4.0, 4.0]
    assert box.perturb(torch.tensor([2.0, 0.0]), torch.tensor([0.5, -9.0])).tolist() == [3.0, -4.0]
    points = box.sample(1000)
    assert points.shape == (1000, 2)
    torch.testing.assert_close(points.mean(0), torch.tensor([2.0, 0.0]), atol=0.3, rtol=0.0)


@pytest.mark.parametrize("bounds", [{"low": 1.0, "high": 1.0}, {"high": torch.inf}], ids=str)
def test_bounds_must_be_finite_and_in_order(bounds):
    with pytest.raises(ConfigError, match="finite"):
        DeterministicPolicy(mlp(3, 1), 1, **bounds)


def test_noise_has_its_deviation_in_halves_of_the_box_and_can_be_switched_off():
    policy = DeterministicPolicy(nn.Linear(1, 1), 1, low=-20.0, high=20.0)
    noisy = AdditiveGaussian(policy, 0.1)
    nn.init.zeros_(policy.network.weight)
    nn.init.zeros_(policy.network.bias)
    torch.manual_seed(0)
    action = noisy.act(torch.zeros(20_000, 1))["action"]
    assert action.std().item() == pytest.approx(2.0, rel=0.02)
    assert abs(action.mean().item()) < 0.05
    torch.manual_seed(0)
    batch = noisy(TensorDict(observation=torch.zeros(20_000, 1), batch_size=[20_000]))
    assert torch.equal(batch["action"], action)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        assert noisy.act(torch.zeros(3, 1))["action"].eq(0).all()
    clipped = AdditiveGaussian(policy, 9.0).act(torch.zeros(1000, 1))["action"]
    assert clipped.abs().max().item() == 20.0
    twin = AdditiveGaussian(policy, 0.5)
    twin.load_state_dict(noisy.state_dict())  # as the copy that collects ahead does
    assert twin.sigma == 0.1


def test_a_negative_deviation_is_refused():
    with pytest.raises(ConfigError, match="AdditiveGaussian"):
        AdditiveGaussian(DeterministicPolicy(mlp(3, 1), 1), -0.1)


def test_the_deviation_of_each_environment_is_drawn_once_an_episode():
    policy = DeterministicPolicy(nn.Linear(1, 2), (2, 1), low=-20.0, high=20.0)
    noisy = PerEnvGaussian(policy, 0.01, 0.05)
    nn.init.zeros_(policy.network.weight)
    nn.init.zeros_(policy.network.bias)
    initial = noisy.make_tensordict_primer().default_value["exploration", "sigma"]
    begins, seen = torch.full((500, 1), float(initial)), torch.zeros(500, 1)
    first, *later = [noisy.act(seen, begins)]
    sigma = first["next", "exploration", "sigma"]
    assert sigma.min() >= 0.01
    assert sigma.max() <= 0.05
    torch.testing.assert_close(sigma.mean().item(), 0.03, atol=0.002, rtol=0.0)
    torch.testing.assert_close(sigma.std().item(), 0.04 / 12**0.5, atol=0.002, rtol=0.0)
    later = [noisy.act(seen, sigma) for _ in range(300)]
    assert all(torch.equal(out["next", "exploration", "sigma"], sigma) for out in later)
    found = torch.stack([out["action"] for out in later]).flatten(2).std((0, 2)) / 20.0
    torch.testing.assert_close(found, sigma[:, 0], rtol=0.2, atol=0.0)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        out = noisy.act(seen, begins)
    assert out["action"].eq(0).all()
    assert torch.equal(out["next", "exploration", "sigma"], begins)


def test_deviations_of_environments_have_to_be_in_order():
    with pytest.raises(ConfigError, match=r"PerEnvGaussian: sigma=0.5 .* sigma_max=0.1"):
        PerEnvGaussian(DeterministicPolicy(mlp(3, 1), 1), 0.5, 0.1)
