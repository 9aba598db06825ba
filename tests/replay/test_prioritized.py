"""Prioritized sampling against the definitions of Schaul et al., alone and in TorchRL's buffers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from hooktrainer.errors import ConfigError
from hooktrainer.replay import PrioritizedSampler


class Storage:
    ndim = 1

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


def make_sampler(priorities, **arguments):
    arguments = {"alpha": 0.7, "beta": 0.5, "dtype": torch.float64, **arguments}
    sampler = PrioritizedSampler(len(priorities), **arguments)
    sampler.update_priority(torch.arange(len(priorities)), torch.as_tensor(priorities))
    return sampler


@pytest.mark.parametrize("stratified", [False, True])
def test_probabilities_and_weights_are_those_of_the_paper(stratified):
    priorities = np.array([0.0, 1.0, 2.0, 4.0, 0.5])
    sampler = make_sampler(priorities, eps=0.1, stratified=stratified)
    index, info = sampler.sample(Storage(5), 50_000)
    powers = (priorities + 0.1) ** 0.7
    probability = powers / powers.sum()
    frequencies = np.bincount(index.numpy(), minlength=5) / 50_000
    np.testing.assert_allclose(frequencies, probability, atol=0.006)
    weights = (5 * probability) ** -0.5
    expected = (weights / weights.max())[index.numpy()]
    np.testing.assert_allclose(info["priority_weight"].numpy(), expected, rtol=1e-5)


def test_stratified_draws_one_from_each_share():
    sampler = make_sampler([1.0] * 8, alpha=1.0, eps=0.0, stratified=True)
    for _ in range(20):
        index, _ = sampler.sample(Storage(8), 8)
        assert sorted(index.tolist()) == list(range(8))


def test_alpha_zero_is_uniform_and_beta_zero_does_not_correct():
    sampler = make_sampler([0.1, 10.0], alpha=0.0, beta=0.0)
    index, info = sampler.sample(Storage(2), 20_000)
    assert abs(index.double().mean().item() - 0.5) < 0.02
    assert (info["priority_weight"] == 1).all()


def test_new_transitions_get_the_greatest_priority_there_has_been():
    sampler = PrioritizedSampler(4, alpha=1.0, beta=1.0, eps=0.0)
    assert sampler.default_priority == 1.0
    sampler.mark_update(torch.tensor([0, 1]))
    sampler.update_priority(torch.tensor([0]), 8.0)
    sampler.update_priority(torch.tensor([0]), 2.0)
    sampler.mark_update(torch.tensor([2]))
    assert sampler._tree.weights.tolist() == [2.0, 1.0, 8.0, 0.0]


def test_or_the_greatest_priority_in_the_buffer():
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


def test_a_wrong_number_of_priorities_is_refused():
    sampler = PrioritizedSampler(4, alpha=1.0, beta=1.0)
    with pytest.raises(ValueError, match="3 priorities for 2 indices"):
        sampler.update_priority(torch.tensor([0, 1]), torch.ones(3))


def test_negative_indices_are_left_out():
    sampler = PrioritizedSampler(4, alpha=1.0, beta=1.0, eps=0.0)
    sampler.update_priority(torch.tensor([-1, 2]), torch.tensor([7.0, 3.0]))
    assert sampler._tree.weights.tolist() == [0.0, 0.0, 3.0, 0.0]


def test_an_empty_buffer_cannot_be_sampled():
    with pytest.raises(RuntimeError, match="empty buffer"):
        PrioritizedSampler(4, alpha=1.0, beta=1.0).sample(Storage(0), 2)


@pytest.mark.parametrize("how", ["state_dict", "dumps"])
def test_state_is_exact(how, tmp_path):
    sampler = make_sampler(torch.rand(100), dtype=torch.float32)
    sampler.beta = 0.8
    twin = PrioritizedSampler(100, alpha=0.1, beta=0.1)
    if how == "state_dict":
        twin.load_state_dict(sampler.state_dict())
    else:
        sampler.dumps(tmp_path)
        twin.loads(tmp_path)
    assert twin.default_priority == sampler.default_priority
    draws = []
    for each in (sampler, twin):
        torch.manual_seed(1)
        draws.append(each.sample(Storage(100), 50))
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1]["priority_weight"], draws[1][1]["priority_weight"])


def test_a_state_does_not_change_with_the_sampler():
    sampler = make_sampler([1.0, 2.0])
    state = sampler.state_dict()
    before = state["weights"].clone()
    sampler.update_priority(torch.tensor([0]), 5.0)
    assert torch.equal(state["weights"], before)


def test_a_state_too_large_is_refused():
    state = make_sampler([1.0] * 5).state_dict()
    with pytest.raises(ConfigError, match="max_capacity is 4"):
        PrioritizedSampler(4, alpha=1.0, beta=1.0).load_state_dict(state)


def test_alpha_can_be_annealed():
    sampler = make_sampler([0.5, 2.0], eps=0.0, alpha=1.0)
    sampler.alpha = 0.5
    np.testing.assert_allclose(sampler._tree.weights, [0.5**0.5, 2.0**0.5])
    sampler.alpha = 0.0
    with pytest.raises(ConfigError, match="alpha"):
        sampler.alpha = 0.5


@pytest.mark.parametrize("arguments", [{"alpha": -1.0}, {"beta": -1.0}, {"dtype": torch.float16}])
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        PrioritizedSampler(4, **{"alpha": 1.0, "beta": 1.0, **arguments})


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


def test_torchrls_buffer_overwrites_the_oldest_with_the_default_priority():
    buffer = make_buffer(4)
    buffer.extend(TensorDict(x=torch.arange(4.0), batch_size=[4]))
    buffer.update_priority(torch.arange(4), torch.zeros(4))
    buffer.extend(TensorDict(x=torch.tensor([9.0]), batch_size=[1]))
    assert (buffer.sample()["x"] == 9).all()


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


def test_torchrls_buffer_saves_and_restores_it(tmp_path):
    buffer, twin = make_buffer(), make_buffer()
    buffer.extend(TensorDict(x=torch.arange(8.0), batch_size=[8]))
    buffer.update_priority(torch.arange(8), torch.rand(8))
    twin.load_state_dict(buffer.state_dict())
    draws = []
    for each in (buffer, twin):
        torch.manual_seed(3)
        draws.append(each.sample()["x"])
    assert torch.equal(*draws)
