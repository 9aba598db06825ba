"""Prioritized sampling against the definitions of Schaul et al., alone and in TorchRL's buffers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from no_waiting import NoWaiting
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from hooktrainer.errors import ConfigError
from hooktrainer.replay import DevicePrioritizedSampler, PrioritizedSampler, ReplayBuffer

KINDS = [PrioritizedSampler, partial(DevicePrioritizedSampler, device="cpu")]
IDS = ["cpu", "device"]


class Storage:
    ndim = 1

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


def make_sampler(priorities, kind=PrioritizedSampler, **arguments):
    sampler = kind(len(priorities), **{"alpha": 0.7, "beta": 0.5} | arguments)
    sampler.update_priority(torch.arange(len(priorities)), torch.as_tensor(priorities))
    return sampler


def weights(sampler):
    return sampler.state_dict()["weights"].tolist()


# -- what both samplers have in common ------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
@pytest.mark.parametrize("stratified", [False, True])
def test_probabilities_and_weights_are_those_of_the_paper(kind, stratified):
    priorities = np.array([0.0, 1.0, 2.0, 4.0, 0.5])
    sampler = make_sampler(priorities, kind, eps=0.1, stratified=stratified)
    index, info = sampler.sample(Storage(5), 50_000)
    powers = (priorities + 0.1) ** 0.7
    probability = powers / powers.sum()
    frequencies = np.bincount(index.numpy(), minlength=5) / 50_000
    np.testing.assert_allclose(frequencies, probability, atol=0.006)
    weights = (5 * probability) ** -0.5
    expected = (weights / weights.max())[index.numpy()]
    assert info["priority_weight"].dtype is torch.float32
    np.testing.assert_allclose(info["priority_weight"].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_stratified_draws_one_from_each_share(kind):
    sampler = make_sampler([1.0] * 8, kind, alpha=1.0, eps=0.0, stratified=True)
    for _ in range(20):
        index, _ = sampler.sample(Storage(8), 8)
        assert sorted(index.tolist()) == list(range(8))


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
    sampler = make_sampler(torch.rand(100), kind)
    twin = other(100, alpha=0.1, beta=0.1)
    twin.load_state_dict(state := sampler.state_dict())
    before = state["weights"].clone()
    sampler.mark_update(torch.tensor([0]))
    assert torch.equal(state["weights"], before)
    twin.mark_update(torch.tensor([0]))
    assert str(twin.state_dict()) == str(sampler.state_dict())
    if kind is other:
        assert_equal_draws(sampler, twin)


def test_a_state_in_files_is_exact(tmp_path):
    """Only the sampler of TorchRL's buffers writes files."""
    sampler = make_sampler(torch.rand(100))
    twin = PrioritizedSampler(100, alpha=0.1, beta=0.1)
    sampler.dumps(tmp_path)
    twin.loads(tmp_path)
    assert str(twin.state_dict()) == str(sampler.state_dict())
    assert_equal_draws(sampler, twin)


def assert_equal_draws(sampler, twin):
    draws = []
    for each in (sampler, twin):
        torch.manual_seed(1)
        draws.append(each.sample(Storage(100), 50))
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1]["priority_weight"], draws[1][1]["priority_weight"])


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_impossible_uses_are_refused(kind):
    for wrong in ({"alpha": -1.0}, {"beta": -1.0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            kind(4, **{"alpha": 1.0, "beta": 1.0} | wrong)
    small = kind(4, alpha=1.0, beta=1.0)
    with pytest.raises(ConfigError, match="5 priorities, but max_capacity is 4"):
        small.load_state_dict(make_sampler([1.0] * 5, kind).state_dict())
    with pytest.raises(RuntimeError, match="empty buffer"):
        small.sample(Storage(0), 2)


def test_the_device_sampler_does_not_synchronize():
    sampler = make_sampler([1.0, 2.0, 3.0, 4.0, 0.0, 0.0], KINDS[1])
    buffer = ReplayBuffer(6, batch_size=3, sampler=sampler)
    buffer.extend(TensorDict({"x": torch.arange(4)}, [4]))  # allocates
    with NoWaiting():
        buffer.extend(TensorDict({"x": torch.arange(4)}, [4]))
        sample = buffer.sample()
        sample["td_error"] = torch.rand(3)
        buffer.update_tensordict_priority(sample)


# -- the sampler on the CPU ------------------------------------------------------------------------


def test_new_transitions_may_get_the_greatest_priority_in_the_buffer():
    sampler = PrioritizedSampler(
        4, alpha=0.5, beta=1.0, eps=0.0, dtype=torch.float64, max_priority_within_buffer=True
    )
    sampler.mark_update(torch.tensor([0, 1]))
    sampler.update_priority(torch.tensor([0, 1]), torch.tensor([9.0, 4.0]))
    assert sampler.default_priority == pytest.approx(9.0)
    sampler.update_priority(torch.tensor([0]), 0.25)
    assert sampler.default_priority == pytest.approx(4.0)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_bad_priorities_are_refused(bad):
    sampler = PrioritizedSampler(4, alpha=1.0, beta=1.0)
    with pytest.raises(ValueError, match="finite"):
        sampler.update_priority(torch.tensor([0, 1]), torch.tensor([1.0, bad]))


def test_alpha_can_be_annealed():
    sampler = make_sampler([0.5, 2.0], eps=0.0, alpha=1.0)
    sampler.alpha = 0.5
    np.testing.assert_allclose(weights(sampler), [0.5**0.5, 2.0**0.5], rtol=1e-6)
    sampler.alpha = 0.0
    with pytest.raises(ConfigError, match="alpha"):
        sampler.alpha = 0.5


# -- in TorchRL's buffer ---------------------------------------------------------------------------


def make_buffer(size=8, **arguments):
    return TensorDictReplayBuffer(
        storage=LazyTensorStorage(size),
        sampler=PrioritizedSampler(size, alpha=1.0, beta=1.0, eps=0.0),
        batch_size=64,
        **arguments,
    )


def test_torchrls_buffer_marks_samples_and_updates():
    buffer = make_buffer()
    buffer.extend(TensorDict(x=torch.arange(4.0), batch_size=[4]))
    sample = buffer.sample()
    assert set(sample["index"].tolist()) == {0, 1, 2, 3}
    assert (sample["priority_weight"] == 1).all()
    sample["td_error"] = torch.where(sample["x"] == 2, 1.0, 0.0)
    buffer.update_tensordict_priority(sample)
    assert (buffer.sample()["x"] == 2).all()


def test_torchrls_buffer_of_several_dimensions():
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(12, ndim=2),
        sampler=PrioritizedSampler(12, alpha=1.0, beta=1.0, eps=0.0),
        batch_size=200,
        dim_extend=0,
    )
    buffer.extend(TensorDict(x=torch.arange(12).view(4, 3), batch_size=[4, 3]))
    sample = buffer.sample()
    assert set(sample["x"].tolist()) == set(range(12))
    sample["td_error"] = torch.where(sample["x"] == 7, 1.0, 0.0)
    buffer.update_tensordict_priority(sample)
    assert (buffer.sample()["x"] == 7).all()
