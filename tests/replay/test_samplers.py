from __future__ import annotations

import itertools

import torch

from hooktrainer.replay import SamplerWithoutReplacement

STORAGE = list(range(10))


def take(sampler, size, number):
    return [sampler.sample(STORAGE, size)[0].tolist() for _ in range(number)]


def flat(batches):
    return list(itertools.chain(*batches))


def test_a_pass_is_drawn_with_the_generator_of_the_buffer():
    passes = []
    for _ in range(2):
        sampler = SamplerWithoutReplacement()
        sampler._rng = torch.Generator().manual_seed(3)
        passes.append(take(sampler, 10, 1))
    assert passes[0] == passes[1]


def test_a_restored_sampler_finishes_the_pass():
    sampler, twin = SamplerWithoutReplacement(), SamplerWithoutReplacement()
    first = take(sampler, 4, 1)[0]
    twin.load_state_dict(sampler.state_dict())
    rest = flat(take(twin, 3, 2))
    assert sorted(first + rest) == STORAGE
    assert twin.ran_out
