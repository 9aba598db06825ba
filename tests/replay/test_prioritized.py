"""Prioritized sampling against the definitions of Schaul et al., on the CPU and on a device."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from no_waiting import NoWaiting
from tensordict import TensorDict

from hooktrainer.errors import ConfigError
from hooktrainer.replay import DevicePrioritizedSampler, PrioritizedSampler, ReplayBuffer

KINDS = [PrioritizedSampler, partial(DevicePrioritizedSampler, device="cpu")]
IDS = ["cpu", "device"]


def make_sampler(priorities, kind=PrioritizedSampler, **arguments):
    sampler = kind(len(priorities), **{"alpha": 0.7, "beta": 0.5} | arguments)
    sampler.update_priority(torch.arange(len(priorities)), torch.as_tensor(priorities))
    return sampler


def weights(sampler):
    return sampler.state_dict()["weights"].tolist()


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_probabilities_and_weights_are_those_of_the_paper(kind):
    priorities = np.array([0.0, 1.0, 2.0, 4.0, 0.5])
    sampler = make_sampler(priorities, kind, eps=0.1)
    index, info = sampler.sample(range(5), 50_000)
    powers = (priorities + 0.1) ** 0.7
    probability = powers / powers.sum()
    frequencies = np.bincount(index.numpy(), minlength=5) / 50_000
    np.testing.assert_allclose(frequencies, probability, atol=0.006)
    weights = (5 * probability) ** -0.5
    expected = (weights / weights.max())[index.numpy()]
    assert info["priority_weight"].dtype is torch.float32
    np.testing.assert_allclose(info["priority_weight"].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_new_transitions_get_the_greatest_priority_so_far(kind):
    sampler = kind(3, alpha=1.0, beta=1.0, eps=0.0)
    sampler.mark_update(torch.tensor([0, 1]))
    sampler.update_priority(torch.tensor([0]), 8.0)
    sampler.update_priority(torch.tensor([0]), 2.0)
    sampler.mark_update(torch.tensor([2]))
    assert weights(sampler) == [2.0, 1.0, 8.0]


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
@pytest.mark.parametrize("other", KINDS, ids=IDS)
def test_a_state_is_exact_and_fits_either_sampler(kind, other):
    sampler = make_sampler(2 * torch.rand(100), kind)  # the greatest of which is not 1
    twin = other(100, alpha=0.1, beta=0.1)
    twin.load_state_dict(state := sampler.state_dict())
    before = state["weights"].clone()
    sampler.mark_update(torch.tensor([0]))
    assert torch.equal(state["weights"], before)
    twin.mark_update(torch.tensor([0]))
    assert str(twin.state_dict()) == str(sampler.state_dict())
    if kind is other:
        draws = []
        for each in (sampler, twin):
            torch.manual_seed(1)
            draws.append(each.sample(range(100), 50))
        assert str(draws[0]) == str(draws[1])


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_impossible_uses_are_refused(kind):
    for wrong in ({"alpha": -1.0}, {"beta": -1.0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            kind(4, **{"alpha": 1.0, "beta": 1.0} | wrong)
    with pytest.raises(RuntimeError, match="empty buffer"):
        ReplayBuffer(4, sampler=kind(4, alpha=1.0, beta=1.0)).sample(2)


def test_the_device_sampler_does_not_synchronize():
    sampler = make_sampler([1.0, 2.0, 3.0, 4.0, 0.0, 0.0], KINDS[1])
    buffer = ReplayBuffer(6, batch_size=3, sampler=sampler)
    buffer.extend(TensorDict({"x": torch.arange(4)}, [4]))  # allocates
    with NoWaiting():
        buffer.extend(TensorDict({"x": torch.arange(4)}, [4]))
        sample = buffer.sample()
        sample["td_error"] = torch.rand(3)
        buffer.update_tensordict_priority(sample)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_bad_priorities_are_refused(bad):
    sampler = PrioritizedSampler(4, alpha=1.0, beta=1.0)
    with pytest.raises(ValueError, match="finite"):
        sampler.update_priority(torch.tensor([0, 1]), torch.tensor([1.0, bad]))
