"""Numbers drawn in the shape of a tensor, equal to torch's."""

from __future__ import annotations

import pytest
import torch

from hooktrainer.base.tensordicts import normal_like, uniform_like

PAIRS = [(normal_like, torch.randn_like), (uniform_like, torch.rand_like)]


@pytest.mark.parametrize(("draw", "torchs"), PAIRS, ids=["normal", "uniform"])
def test_they_are_those_of_torch(draw, torchs):
    whole = torch.zeros(40, 6)
    for x in (whole, whole[:3], whole.t(), whole.chunk(2, -1)[1]):
        torch.manual_seed(0)
        expected = torchs(x)
        torch.manual_seed(0)
        assert torch.equal(draw(x), expected)
