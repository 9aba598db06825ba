"""Matrix products of graphs: the same numbers, in less time."""

from __future__ import annotations

import pytest
import torch

from hooktrainer.graphs import Graph


@pytest.mark.parametrize("n", [1, 2, 8, 9])
def test_the_gradient_of_a_layer_of_few_inputs(n: int) -> None:
    grad, seen = torch.randn(300, 64), torch.randn(300, n)
    (found,) = Graph(lambda a, b: [a.t() @ b], "product")(grad, seen)
    assert found.is_contiguous()  # as torch.mm's result is: optimizers rely on it
    torch.testing.assert_close(found, grad.t() @ seen, rtol=1e-4, atol=1e-4)
