"""`DynamicsEnsemble` learns what an environment does."""

from __future__ import annotations

import pytest
import torch

from hooktrainer.networks import DynamicsEnsemble


def transitions(number: int) -> tuple[torch.Tensor, ...]:
    """A linear world: the observation moves by the action, the reward is minus its distance."""
    observation = torch.randn(number, 2) * 3
    action = torch.randn(number, 1)
    following = observation + torch.cat([action, -action], -1)
    return observation, action, following, -observation.abs().sum(-1, keepdim=True)


def test_it_learns_to_predict_the_next_observation_and_the_reward():
    torch.manual_seed(0)
    model = DynamicsEnsemble(2, 1, num_models=3, num_cells=(32, 32))
    data = transitions(1_000)
    model.update(*data)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(400):
        rows = torch.randint(1_000, (3, 128))
        model.loss(*(entry[rows] for entry in data)).backward()
        optimizer.step()
        optimizer.zero_grad()
    observation, action, following, reward = transitions(500)
    predicted, predicted_reward = model.sample(observation, action)
    assert predicted.shape == following.shape
    assert (predicted - following).abs().mean() < 0.3
    assert (predicted_reward - reward).abs().mean() < reward.std() / 2


def test_the_loss_equals_mbrls():
    """Of mbrl 0.2.0: OneDTransitionRewardModel.loss of a GaussianMLP with these parameters."""

    def wave(shape, phase=0.0):
        return torch.sin(0.7 * torch.arange(torch.Size(shape).numel()) + phase).reshape(shape)

    model = DynamicsEnsemble(2, 1, num_models=2, num_cells=(4,))
    parameters = [*model.weights, *model.biases, model.least_log_var, model.greatest_log_var]
    for place, parameter in enumerate(parameters[:4]):
        parameter.data = wave(parameter.shape, place)
    model.least_log_var.data, model.greatest_log_var.data = wave((3,)) - 1.5, wave((3,)) + 0.5
    entries = [wave((2, 5, size), phase) for phase, size in enumerate((2, 1, 2, 1))]
    loss = model.loss(*entries)
    assert loss.item() == pytest.approx(2.3944757, abs=1e-5)
    loss.backward()
    norms = [parameter.grad.norm().item() for parameter in parameters]
    theirs = [1.5334102, 0.7976847, 0.7401560, 0.9374348, 0.3465704, 0.1043759]
    assert norms == pytest.approx(theirs, abs=1e-5)


def test_the_log_variance_stays_in_its_bounds():
    model = DynamicsEnsemble(2, 1, num_models=2)
    with torch.no_grad():
        model.biases[-1][:, :, 3:] = torch.tensor([-1e3, 0.0, 1e3])
    _, log_var = model(torch.zeros(1, 2), torch.zeros(1, 1))
    assert (log_var >= -10 - 1e-3).all()
    assert (log_var <= 0.5 + 1e-3).all()
