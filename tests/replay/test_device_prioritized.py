from __future__ import annotations

import pytest
import torch
from no_waiting import NoWaiting
from tensordict import TensorDict

from hooktrainer import ConfigError
from hooktrainer.replay import DevicePrioritizedSampler, PrioritizedSampler, ReplayBuffer

PRIORITIES = torch.tensor([1.0, 2.0, 3.0, 4.0])


def sampler(**options) -> DevicePrioritizedSampler:
    made = DevicePrioritizedSampler(6, 0.5, 0.4, device="cpu", **options)
    made.update_priority(torch.arange(4), PRIORITIES)
    return made


@pytest.mark.parametrize("stratified", [False, True])
def test_it_draws_by_priority(stratified):
    torch.manual_seed(0)
    index, info = sampler(stratified=stratified).sample(range(4), 20_000)
    expected = PRIORITIES.sqrt() / PRIORITIES.sqrt().sum()
    found = torch.bincount(index, minlength=4) / len(index)
    torch.testing.assert_close(found, expected, atol=0.015, rtol=0)
    assert info["priority_weight"].dtype is torch.float32


def test_weights_are_those_of_the_sampler_on_the_cpu():
    torch.manual_seed(0)
    other = PrioritizedSampler(6, 0.5, 0.4)
    other.update_priority(torch.arange(4), PRIORITIES)
    weight = {}
    for one in (sampler(), other):
        storage = ReplayBuffer(6)
        storage.extend(TensorDict({"x": torch.arange(4)}, [4]))
        index, info = one.sample(storage, 200)
        weight[one] = dict(zip(index.tolist(), info["priority_weight"].tolist(), strict=True))
    first, second = weight.values()
    assert first.keys() == second.keys() == {0, 1, 2, 3}
    assert all(first[i] == pytest.approx(second[i], rel=1e-5) for i in first)


def test_new_transitions_get_the_greatest_priority():
    made = sampler()
    made.mark_update(torch.tensor([4, 5]))
    expected = torch.cat([PRIORITIES, torch.tensor([4.0, 4.0])]).sqrt()
    torch.testing.assert_close(made.state_dict()["weights"], expected)


def test_each_sampler_loads_the_others_state():
    made, other = sampler(), PrioritizedSampler(6, 1.0, 1.0)
    other.load_state_dict(made.state_dict())
    again = DevicePrioritizedSampler(6, 1.0, 1.0, device="cpu")
    again.load_state_dict(other.state_dict())
    assert str(again.state_dict()) == str(made.state_dict())
    with pytest.raises(ConfigError, match="6 priorities, but max_capacity is 3"):
        DevicePrioritizedSampler(3, 1.0, 1.0, device="cpu").load_state_dict(made.state_dict())


def test_it_waits_for_nothing():
    buffer = ReplayBuffer(6, batch_size=3, sampler=sampler())
    buffer.extend(TensorDict({"x": torch.arange(4)}, [4]))  # allocates
    with NoWaiting():
        buffer.extend(TensorDict({"x": torch.arange(4)}, [4]))
        sample = buffer.sample()
        sample["td_error"] = torch.rand(3)
        buffer.update_tensordict_priority(sample)


def test_what_cannot_work_is_refused():
    with pytest.raises(ConfigError, match=r"alpha=-1\.0"):
        DevicePrioritizedSampler(3, -1.0, 1.0, device="cpu")
    with pytest.raises(RuntimeError, match="empty buffer"):
        ReplayBuffer(6, batch_size=3, sampler=sampler()).sample()
