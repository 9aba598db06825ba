from __future__ import annotations

import itertools

import pytest
import torch

from hooktrainer.replay import SamplerWithoutReplacement

STORAGE = list(range(10))


def take(sampler, size, number):
    return [sampler.sample(STORAGE, size)[0].tolist() for _ in range(number)]


def flat(batches):
    return list(itertools.chain(*batches))


def test_each_pass_has_an_order_of_its_own():
    sampler = SamplerWithoutReplacement()
    passes = [flat(take(sampler, 5, 2)) for _ in range(2)]
    assert all(sorted(each) == STORAGE for each in passes)
    assert passes[0] != passes[1]


def test_without_shuffling_the_order_is_that_of_the_storage():
    assert take(SamplerWithoutReplacement(shuffle=False), 4, 4) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
        [0, 1, 2, 3],
    ]


def test_dropping_the_last_batch_ends_the_pass_before_it():
    sampler = SamplerWithoutReplacement(drop_last=True, shuffle=False)
    assert take(sampler, 4, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert sampler.ran_out
    assert take(sampler, 4, 1) == [[0, 1, 2, 3]]
    assert not sampler.ran_out


def test_too_little_for_a_full_batch_is_refused():
    with pytest.raises(RuntimeError, match="10 transitions do not fill a batch of 11"):
        SamplerWithoutReplacement(drop_last=True).sample(STORAGE, 11)
    with pytest.raises(RuntimeError, match="empty buffer"):
        SamplerWithoutReplacement().sample([], 2)


def test_a_restored_sampler_finishes_the_pass():
    sampler, twin = SamplerWithoutReplacement(), SamplerWithoutReplacement()
    first = take(sampler, 4, 1)[0]
    twin.load_state_dict(sampler.state_dict())
    rest = flat(take(twin, 3, 2))
    assert sorted(first + rest) == STORAGE
    assert twin.ran_out


def test_the_order_comes_from_the_generator():
    orders = []
    for _ in range(2):
        sampler = SamplerWithoutReplacement()
        sampler._rng = torch.Generator().manual_seed(5)
        orders.append(take(sampler, 10, 1))
        torch.rand(1)
    assert orders[0] == orders[1]
