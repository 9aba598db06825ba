"""`RunningNorm` keeps the statistics of everything it was shown."""

from __future__ import annotations

import math

import pytest
import torch

from hooktrainer.networks import RunningNorm


def test_mean_and_variance_are_those_of_all_batches_together():
    norm = RunningNorm(2)
    batches = [torch.randn(n, 3, 2) * 5 + 7 for n in (1, 4, 2)]
    for batch in batches:
        norm.update(batch)
    everything = torch.cat(batches).reshape(-1, 2).double()
    torch.testing.assert_close(norm.mean, everything.mean(0))
    torch.testing.assert_close(norm.var, everything.var(0, correction=0))
    assert norm.count == 21


@pytest.mark.parametrize("shape", [(), (6,), (3, 2), (6, 1)])
def test_numbers_of_any_shape_have_each_their_own_statistics(shape):
    x = torch.randn(5, 4, *shape)
    norm = RunningNorm(math.prod(shape))
    norm.update(x)
    norm.update(x[:0])  # nothing
    flat = x.reshape(20, -1).double()
    torch.testing.assert_close(norm.mean, flat.mean(0))
    torch.testing.assert_close(norm.var, flat.var(0, correction=0))
    assert norm.count == 20


def test_it_normalizes_by_hand_computed_numbers_and_clips():
    norm = RunningNorm(1, clip=2.0, eps=0.0)
    assert norm(torch.tensor([[1.5]])).item() == 1.5
    norm.update(torch.tensor([[1.0], [3.0]]))  # mean 2, deviation 1
    assert norm(torch.tensor([[3.0], [1.5], [9.0]])).flatten().tolist() == [1.0, -0.5, 2.0]
    assert norm.invert(torch.tensor([[1.0]])).item() == 3.0


def test_large_offsets_do_not_lose_the_variance():
    norm = RunningNorm(1)
    for _ in range(100):
        norm.update(torch.tensor([[1e4 - 1], [1e4 + 1]], dtype=torch.float64))
    torch.testing.assert_close(norm.var, torch.ones(1, dtype=torch.float64))
