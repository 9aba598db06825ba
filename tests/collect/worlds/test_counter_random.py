"""Random numbers that are a function of counters."""

from __future__ import annotations

import pytest
import torch

from hooktrainer.collect.worlds.functional_world import GAMMA, stream_keys, uniforms

CPU = torch.device("cpu")


def test_it_is_splitmix64():
    """The numbers that Vigna's splitmix64.c gives for the seed 1234567."""
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    key = torch.tensor([[1234567 + GAMMA]])
    found = torch.cat([uniforms(key, n) for n in range(4)]).flatten()
    assert found.tolist() == [(number >> 40) / 2**24 for number in known]


def test_a_counter_may_be_one_for_all_or_one_a_row():
    keys = stream_keys(3, 0, 0, 4, 5, CPU)
    places = torch.tensor([0, 7, 10**9, 2**40])
    found = uniforms(keys, places)
    assert found.shape == (4, 5)
    assert found.dtype is torch.float32
    for row, place in enumerate(places.tolist()):
        assert torch.equal(found[row], uniforms(keys, place)[row])


def test_a_row_depends_on_its_index_and_not_on_how_many_there_are():
    whole = stream_keys(11, 0, 0, 100, 3, CPU)
    assert torch.equal(stream_keys(11, 0, 40, 20, 3, CPU), whole[40:60])


@pytest.mark.parametrize("other", [(12, 0), (11, 1)])
def test_seeds_and_purposes_have_numbers_of_their_own(other):
    one, two = stream_keys(11, 0, 0, 50, 4, CPU), stream_keys(*other, 0, 50, 4, CPU)
    assert not set(one.flatten().tolist()) & set(two.flatten().tolist())


def test_compiled_is_eager():
    """Wrapping around is what compiled code does too."""
    keys = stream_keys(5, 0, 0, 64, 4, CPU)
    places = torch.arange(64) * 1_000_003
    torch._dynamo.reset()
    compiled = torch.compile(uniforms, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(keys, places), uniforms(keys, places))
