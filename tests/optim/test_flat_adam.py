"""FlatAdam is Adam: the same steps, the same state, one tensor."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from hooktrainer import ConfigError
from hooktrainer.networks import mlp
from hooktrainer.optim import FlatAdam


def pair(**options):
    """Two equal networks, one with torch's optimizer and one with ours."""
    torch.manual_seed(0)
    first = mlp(3, 2, (5, 7))
    second = copy.deepcopy(first)
    torch_options = {k: v for k, v in options.items() if k != "decoupled_weight_decay"}
    adam = torch.optim.AdamW if options.get("decoupled_weight_decay") else torch.optim.Adam
    return (
        first,
        adam(first.parameters(), fused=True, **{"weight_decay": 0.0} | torch_options),
        second,
        FlatAdam(second.parameters(), **options),
    )


def train(network, optimizer, steps, clip=None, first=0):
    for k in range(first, first + steps):
        x = torch.randn(16, 3, generator=torch.Generator().manual_seed(k))
        network(x).square().sum().backward()
        if clip is not None:
            if isinstance(optimizer, FlatAdam):
                optimizer.clip_grad_norm_(clip)
            else:
                nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()


def assert_equal(first, second):
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 0.03, "betas": (0.5, 0.9), "eps": 1e-5},
        {"weight_decay": 0.1},
        {"weight_decay": 0.1, "decoupled_weight_decay": True},
    ],
)
def test_it_steps_as_torchs_adam(options):
    first, adam, second, flat = pair(**options)
    train(first, adam, 20)
    train(second, flat, 20)
    assert_equal(first, second)


@pytest.mark.parametrize("clip", [0.01, 1e6])
def test_it_clips_as_torch_does(clip):
    first, adam, second, flat = pair()
    train(first, adam, 10, clip)
    train(second, flat, 10, clip)
    assert_equal(first, second)


def test_the_norm_is_that_before_clipping_and_the_gradients_are_scaled():
    weight = nn.Parameter(torch.zeros(2))
    bias = nn.Parameter(torch.zeros(1))
    optimizer = FlatAdam([weight, bias])
    (3 * weight[0] + 4 * bias.sum()).backward()
    assert optimizer.clip_grad_norm_(2.5).item() == 5.0
    torch.testing.assert_close(weight.grad, torch.tensor([1.5, 0.0]))
    torch.testing.assert_close(bias.grad, torch.tensor([2.0]))


@pytest.mark.parametrize("source", [0, 1])
@pytest.mark.parametrize("target", [0, 1])
def test_either_loads_the_others_state(source, target):
    def build():
        first, adam, second, flat = pair()
        return (first, adam), (second, flat)

    network, optimizer = build()[source]
    train(network, optimizer, 5)
    state = copy.deepcopy(optimizer.state_dict())
    parameters = copy.deepcopy(network.state_dict())
    train(network, optimizer, 5, first=5)

    resumed, its_optimizer = build()[target]
    fresh = copy.deepcopy(build()[source][1].state_dict())
    train(resumed, its_optimizer, 1)  # whose moments are replaced
    resumed.load_state_dict(parameters)
    its_optimizer.load_state_dict(state)
    train(resumed, its_optimizer, 5, first=5)
    assert_equal(network, resumed)
    torch.testing.assert_close(its_optimizer.state_dict()["state"], optimizer.state_dict()["state"])
    its_optimizer.load_state_dict(fresh)  # that of torch's Adam is empty
    for state in its_optimizer.state_dict()["state"].values():
        assert not any(value.any() for value in state.values())


def test_a_step_with_found_inf_is_none():
    network, _, _, _ = pair()
    optimizer = FlatAdam(network.parameters())
    before = copy.deepcopy((network.state_dict(), optimizer.state_dict()["state"]))
    optimizer.found_inf = torch.ones(())
    train(network, optimizer, 1)
    torch.testing.assert_close((network.state_dict(), optimizer.state_dict()["state"]), before)


def test_a_parameter_without_gradient_is_refused():
    used, unused = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3, 1))
    optimizer = FlatAdam([used, unused])
    used.sum().backward()
    with pytest.raises(ConfigError, match=r"shapes \[\(3, 1\)\] have no gradient"):
        optimizer.step()


def test_parameters_that_moved_are_refused():
    layer = nn.Linear(2, 2)
    optimizer = FlatAdam(layer.parameters())
    layer.weight.data = layer.weight.data.clone()
    layer(torch.ones(1, 2)).sum().backward()
    with pytest.raises(ConfigError, match="moved to other memory"):
        optimizer.step()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_steps_alike(duplicate):
    _, _, network, optimizer = pair()
    train(network, optimizer, 3)
    twin, its_optimizer = duplicate((network, optimizer))
    for each in ((network, optimizer), (twin, its_optimizer)):
        train(*each, 3, first=3)
    assert all(map(torch.equal, network.parameters(), twin.parameters()))


@pytest.mark.parametrize(
    "option",
    [
        {"betas": (0.9, 1.0)},
        {"eps": -1.0},
        {"weight_decay": -0.1},
        {"amsgrad": True},
        {"params": []},
    ],
)
def test_an_invalid_option_is_refused(option):
    with pytest.raises(ConfigError, match=next(iter(option))):
        FlatAdam([{"params": mlp(3, 2).parameters()} | option])


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (lambda p: torch.optim.Adam(p, amsgrad=True), "amsgrad"),
        (lambda p: torch.optim.Adam(p, maximize=True), "maximize"),
        (torch.optim.NAdam, "not of Adam"),
        (torch.optim.SGD, "not of Adam"),
    ],
)
def test_the_state_of_another_optimizer_is_refused(other, match):
    network = mlp(3, 2)
    with pytest.raises(ConfigError, match=match):
        FlatAdam(network.parameters()).load_state_dict(other(network.parameters()).state_dict())
