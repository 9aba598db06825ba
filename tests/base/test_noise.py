"""Numbers drawn in the shape of a tensor: torch's own, and to be given from outside in a graph."""

from __future__ import annotations

import pytest
import torch

from hooktrainer.base.tensordicts import normal_like, uniform_like
from hooktrainer.graphs.functional_loss import GivenDraws

PAIRS = [(normal_like, torch.randn_like), (uniform_like, torch.rand_like)]


@pytest.mark.parametrize(("draw", "torchs"), PAIRS, ids=["normal", "uniform"])
def test_they_are_those_of_torch(draw, torchs):
    whole = torch.zeros(40, 6)
    for x in (whole, whole[:3], whole.t(), whole.chunk(2, -1)[1]):
        torch.manual_seed(0)
        expected = torchs(x)
        torch.manual_seed(0)
        assert torch.equal(draw(x), expected)


@pytest.mark.parametrize(("draw", "torchs"), PAIRS, ids=["normal", "uniform"])
def test_a_graph_of_several_learners_takes_those_that_it_is_given(draw, torchs):
    def one(x, numbers):
        with GivenDraws([numbers]):
            return x + draw(x)

    graph = torch.compile(torch.func.vmap(one), backend="eager", fullgraph=True)
    numbers = torch.arange(6.0).view(2, 3)
    assert torch.equal(graph(torch.ones(2, 3), numbers), numbers + 1)
