"""Products whose numbers depend on one row and one column each."""

from __future__ import annotations

import pytest
import torch

from hooktrainer.graphs.chained_products import separate_bmm, separate_products
from hooktrainer.graphs.compiling import Graph, quiet

SIZES = [(25, 4, 7), (1, 3, 5), (33, 7, 1), (27, 13, 9), (64, 128, 64), (13, 20, 131), (4, 9, 40)]


def matrices(rows, inner, columns, transposed):
    if transposed:
        return torch.randn(5, inner, rows).mT, torch.randn(5, columns, inner).mT
    return torch.randn(5, rows, inner), torch.randn(5, inner, columns)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_number_depends_on_its_row_and_column_alone(size, transposed):
    left, right = matrices(*size, transposed)
    product = separate_bmm(left, right)
    torch.testing.assert_close(product, torch.bmm(left, right))
    assert torch.equal(product, separate_bmm(left.contiguous(), right.contiguous()))
    for k in range(5):
        assert torch.equal(product[k : k + 1], separate_bmm(left[k : k + 1], right[k : k + 1]))
    for i in range(size[0]):
        assert torch.equal(product[:, i : i + 1], separate_bmm(left[:, i : i + 1], right))
    for j in range(size[2]):
        assert torch.equal(product[:, :, j : j + 1], separate_bmm(left, right[:, :, j : j + 1]))


def test_other_types_are_multiplied_as_ever():
    left, right = (x.double() for x in matrices(25, 4, 7, False))
    torch.testing.assert_close(separate_bmm(left, right), torch.bmm(left, right))


@pytest.mark.slow
@pytest.mark.usefixtures("inductor")
def test_a_graph_computes_what_the_operator_does():
    left, right = matrices(27, 300, 9, True)
    graph = Graph(lambda a, b: torch.bmm(a, b) + 1, "a product", quiet, separate_products)
    assert torch.equal(graph(left, right), separate_bmm(left, right) + 1)
