"""NumPy inference must be indistinguishable from the network it stands in for."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hooktrainer.networks import mlp
from hooktrainer.networks.head import Inference


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("batch", [(), (0,), (1,), (2, 3), (5000,)])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_agrees_with_the_network(batch, activation):
    network = mlp(4, 3, (16, 8), activation)
    x = torch.randn(*batch, 4)
    infer = Inference(network)
    assert infer.steps(1, x.dtype)
    torch.testing.assert_close(infer(x), network(x))


def test_nested_sequentials_missing_biases_and_double_precision():
    inner = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh())
    network = nn.Sequential(inner, nn.ReLU(), nn.Linear(8, 2)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    infer = Inference(network)
    assert infer.steps(1, x.dtype)
    assert infer(x).dtype == torch.float64
    torch.testing.assert_close(infer(x), network(x))


@pytest.mark.parametrize("how", ["load", "assign", "data", "replace"])
def test_sees_parameters_however_they_are_exchanged(how):
    network, other = mlp(4, 2), mlp(4, 2)
    infer, x = Inference(network), torch.randn(3, 4)
    infer(x)
    if how in ("load", "assign"):
        network.load_state_dict(other.state_dict(), assign=how == "assign")
    else:
        for mine, theirs in zip(network, other, strict=True):
            if how == "data" and isinstance(mine, nn.Linear):
                mine.weight.data = theirs.weight.data
                mine.bias.data = theirs.bias.data
            elif isinstance(mine, nn.Linear):
                mine.weight, mine.bias = theirs.weight, theirs.bias
    torch.testing.assert_close(infer(x), other(x))


def test_a_copy_follows_the_copied_network():
    owner = nn.ModuleDict({"net": mlp(4, 2)})
    owner.infer = Inference(owner["net"])
    x = torch.randn(3, 4)
    before = owner.infer(x)
    twin = copy.deepcopy(owner)
    for parameter in twin.parameters():
        parameter.add_(1.0)
    torch.testing.assert_close(twin.infer(x), twin["net"](x))
    torch.testing.assert_close(owner.infer(x), before)


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(4, 4), nn.GELU()),
        nn.Sequential(nn.Tanh(), nn.Linear(4, 2)),
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)),
        nn.Sequential(),
    ],
    ids=["norm", "gelu", "activation first", "parametrized", "empty"],
)
def test_other_networks_are_called_as_they_are(network):
    infer, x = Inference(network), torch.randn(3, 4)
    assert not infer.steps(1, torch.float32)
    assert torch.equal(infer(x), network(x))


def test_a_forward_hook_is_not_bypassed():
    network = mlp(4, 2)
    network[0].register_forward_hook(lambda module, args, output: output * 0)
    x = torch.randn(3, 4)
    assert torch.equal(Inference(network)(x), network(x))
