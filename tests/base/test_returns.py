from __future__ import annotations

import pytest
import torch
from no_waiting import NoWaiting, OnDevice

from hooktrainer.hooks.reward_scaler import running_returns


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("time", [1, 2, 7, 64])
def test_on_an_accelerator_they_are_the_same_without_a_loop_over_time(time, ends):
    random = torch.Generator().manual_seed(time)
    rewards = torch.randn(3, time, dtype=torch.float64, generator=random)
    before = torch.randn(3, dtype=torch.float64, generator=random)
    done = torch.rand(3, time, generator=random) < 0.3 if ends else None
    expected = running_returns(rewards, before, 0.9, done)
    on_device = [x if x is None else x.as_subclass(OnDevice) for x in (rewards, before, done)]
    with NoWaiting():
        found = running_returns(on_device[0], on_device[1], 0.9, on_device[2])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.as_subclass(torch.Tensor), other)
