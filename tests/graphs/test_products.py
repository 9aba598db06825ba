"""Batched products of which each depends on its own matrices alone."""

from __future__ import annotations

import pytest
import torch

from hooktrainer.graphs.products import AlignedProducts, aligned_bmm

SIZES = [(25, 4, 7), (1, 3, 5), (33, 7, 1), (27, 13, 9), (5, 1, 3)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_of_odd_sizes_is_the_same_in_a_batch_and_by_itself(size, transposed):
    rows, inner, columns = size
    left = torch.randn(6, rows, inner)
    right = torch.randn(6, columns, inner).mT if transposed else torch.randn(6, inner, columns)

    def eagerly(a, b):
        with AlignedProducts():
            return torch.bmm(a, b)

    for product in (aligned_bmm, eagerly):
        many = product(left, right)
        torch.testing.assert_close(many, torch.bmm(left, right))
        for k in range(6):
            assert torch.equal(many[k], product(left[k : k + 1], right[k : k + 1])[0])


def test_matrices_that_lie_alike_by_themselves_are_left_as_they_are():
    assert aligned_bmm(torch.randn(3, 64, 4), torch.randn(3, 4, 64)) is NotImplemented
