"""Learners whose tensors lie in the rows of arrays, and whose they stay."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hooktrainer.graphs.functional_loss import FunctionalLoss
from hooktrainer.graphs.side_by_side import REGISTERS, SideBySide
from hooktrainer.optim import FlatAdam


class Loss(nn.Module):
    """A network, a target, and a count."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.network = nn.Linear(3, 5)
        self.log_alpha = nn.Parameter(torch.tensor(float(seed)))
        self.register_buffer("target", torch.rand(7))
        self.register_buffer("count", torch.tensor(seed))
        self.register_buffer("nothing", torch.zeros(0))

    def forward(self, batch):
        return batch


def made(number=3, rows=5, flat=True):
    modules = [Loss(seed) for seed in range(number)]
    optimizers = [
        [
            (FlatAdam if flat else torch.optim.Adam)(module.network.parameters()),
            torch.optim.Adam([module.log_alpha]),
        ]
        for module in modules
    ]
    losses = [FunctionalLoss(module) for module in modules]
    return modules, optimizers, SideBySide(losses, optimizers, rows)


def by_own_names(tensors):
    return {name.removeprefix("module."): value for name, value in tensors.items()}


@pytest.mark.parametrize("flat", [True, False])
def test_tensors_keep_their_values_and_lie_in_rows_from_then_on(flat):
    modules, optimizers, beside = made(flat=flat)
    before = [copy.deepcopy(module.state_dict()) for module in modules]
    tensors = by_own_names(beside.gather())
    assert set(tensors) == set(before[0])
    for k, module in enumerate(modules):
        for name, value in module.state_dict().items():
            assert torch.equal(value, before[k][name]), name
            assert torch.equal(tensors[name][k], value), name
    for spare in (3, 4):  # the first one's again
        assert all(torch.equal(value[spare], value[0]) for value in tensors.values())
    with torch.no_grad():
        modules[1].target.fill_(2)
        modules[1].network.weight.fill_(3)
    assert tensors["target"][1].eq(2).all()
    assert tensors["network.weight"][1].eq(3).all()
    modules[1].network(torch.ones(3)).sum().backward()
    optimizers[1][0].step()  # as if they lay elsewhere
    assert tensors["network.weight"][1].lt(3).all()
    assert torch.equal(tensors["network.weight"][0], modules[0].network.weight)


def test_rows_begin_alike_within_a_register():
    modules, _, beside = made()
    beside.gather()
    for name in ("target", "log_alpha", "count"):
        first, second, _ = (getattr(module, name).data_ptr() for module in modules)
        assert (second - first) % (4 * REGISTERS) == 0


def test_what_has_been_moved_or_put_in_place_comes_back():
    modules, optimizers, beside = made()
    views = by_own_names(beside.gather())
    modules[2].target = torch.full((7,), 5.0)  # another tensor
    for flat in optimizers[0][0].flat_groups:
        flat.move(torch.empty_like(flat.parameters))
    with torch.no_grad():
        modules[0].network.bias.fill_(4)
    assert not views["network.bias"][0].eq(4).any()
    tensors = by_own_names(beside.gather())
    assert tensors["target"][2].eq(5).all()
    assert tensors["network.bias"][[0, 3, 4]].eq(4).all()


def test_who_leaves_has_memory_of_its_own():
    modules, optimizers, beside = made()
    tensors = by_own_names(beside.gather())
    before = [copy.deepcopy(module.state_dict()) for module in modules]
    beside.leave()
    for value in tensors.values():
        value.zero_()
    for module, values in zip(modules, before, strict=True):
        for name, value in module.state_dict().items():
            assert torch.equal(value, values[name]), name
    modules[1].network(torch.ones(3)).sum().backward()
    optimizers[1][0].step()
    assert not torch.equal(modules[1].network.weight, before[1]["network.weight"])
