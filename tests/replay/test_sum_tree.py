"""The sum tree against its definition: a plain array and its cumulative sum."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrainer.replay import SumTree

CAPACITIES = [1, 5, 16, 17, 1000, 70_000, 1_200_000]  # one, two and three levels


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_equals_an_array_after_random_writes(capacity):
    rng = np.random.default_rng(0)
    tree, array = SumTree(capacity), np.zeros(capacity, np.float32)
    for size in (1, 7, 128, 3 * capacity):
        index = rng.integers(capacity, size=min(size, 300_000))  # with duplicates
        weight = rng.random(len(index)).astype(np.float32) * (rng.random(len(index)) < 0.8)
        tree.update(index, weight)
        array[index] = weight
        np.testing.assert_array_equal(tree.weights, array)
        np.testing.assert_allclose(tree.total, array.sum(dtype=np.float64), rtol=1e-6)
        assert tree.minimum == (array[array > 0].min() if array.any() else np.inf)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_search_finds_the_weight_at_a_cumulative_weight(capacity):
    rng = np.random.default_rng(0)
    # Small whole numbers, so that every sum is exact; a third of them are zero.
    weights = rng.integers(0, 3, capacity).astype(np.float32)
    weights[capacity // 2] = 2
    tree = SumTree(capacity)
    tree.update(np.arange(capacity), weights)
    cumulative = weights.cumsum(dtype=np.float64)
    edges = np.unique(cumulative)[:-1][:500]
    mass = np.concatenate([rng.random(500) * tree.total, edges, [0.0, tree.total - 0.5]])
    expected = cumulative.searchsorted(mass, side="right")
    np.testing.assert_array_equal(tree.search(mass), expected)


def test_search_never_finds_a_zero_whatever_the_rounding():
    weights = np.zeros(10_000, np.float32)
    weights[[3, 5000, 9000]] = [1e-8, 1.0, 1e8]
    tree = SumTree(10_000)
    tree.update(np.arange(10_000), weights)
    mass = np.array([0.0, 1e-9, 1e-8, 0.5, tree.total, np.nextafter(tree.total, 0), 2 * tree.total])
    assert (weights[tree.search(mass)] > 0).all()
