"""Adam's step for compiled graphs is that of the optimizer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hooktrainer.optim import FlatAdam
from hooktrainer.optim.flat_adam import AdamState, adam_step, computed_once, hyperparameters


@pytest.mark.parametrize("decoupled", [False, True])
def test_it_steps_as_the_optimizer(decoupled):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(7))
    options = {"lr": 0.1, "weight_decay": 0.2, "decoupled_weight_decay": decoupled}
    optimizer = FlatAdam([weight], **options)
    zeros = torch.zeros(7)
    state = AdamState(weight.detach().clone(), zeros, zeros, torch.zeros(()))
    hyper = torch.tensor(hyperparameters(optimizer.param_groups[0]), dtype=torch.float64)
    for _ in range(5):
        weight.grad = torch.randn(7)
        state = adam_step(state, weight.grad.clone(), hyper, decoupled)
        optimizer.step()
    torch.testing.assert_close(state.parameters, weight.detach())
    torch.testing.assert_close(state.exp_avg_sq, optimizer.state[weight]["exp_avg_sq"])
    assert state.steps == 5


def test_what_is_computed_once_is_the_same():
    first, second = torch.rand((), dtype=torch.float64), torch.rand((), dtype=torch.float64)
    again = computed_once(first, second)
    assert [value.item() for value in again] == [first.item(), second.item()]
    assert [value.shape for value in again] == [(), ()]
