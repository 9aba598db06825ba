"""What is calculated from standard draws is distributed as what torch draws itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hooktrainer.policies.draws import FROM_STANDARD

NUMBER = 40_000
APART = 1.95 / math.sqrt(NUMBER)  # Kolmogorov and Smirnov: exceeded once in a thousand
ATEN = torch.ops.aten


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def farthest(drawn: torch.Tensor, log_density, low: float, high: float) -> float:
    """The greatest distance of the shares below a value from those that the density gives.

    The density, of what is drawn on a scale on which it is bounded, is integrated numerically.
    """
    grid = np.linspace(low, high, 400_001)
    middle = (grid[1:] + grid[:-1]) / 2
    steps = np.exp(log_density(middle)) * np.diff(grid)
    assert steps.sum() == pytest.approx(1, abs=1e-4)
    below = np.interp(np.sort(drawn.double().numpy()), grid, np.append(0, np.cumsum(steps)))
    ranks = np.arange(len(below)) / len(below)
    return max(np.abs(below - ranks).max(), np.abs(below - ranks - 1 / len(below)).max())


@pytest.mark.parametrize("a", [0.05, 0.5, 1.0, 1.02, 3.0, 40.0, 1e5])
def test_gamma(a):
    drawn = FROM_STANDARD[ATEN._standard_gamma.default](torch.full((NUMBER,), a))

    def density(log):  # of the logarithm
        return a * log - np.exp(log) - math.lgamma(a)

    low = math.log(a) - 8 / math.sqrt(a) - 12 / a
    high = max(math.log(a), 0) + min(4, 8 / math.sqrt(a))
    assert farthest(drawn.double().log().clamp(low), density, low, high) < APART


@pytest.mark.parametrize(
    ("a", "b"), [(0.5, 0.5), (1.001, 1.001), (1.5, 4.0), (30.0, 2.0), (900.0, 1100.0)]
)
def test_beta(a, b):
    """As `torch.distributions.Beta` draws it: the first of two of a Dirichlet distribution."""
    concentration = torch.tensor([a, b]).expand(NUMBER, 2)
    drawn = FROM_STANDARD[ATEN._sample_dirichlet.default](concentration)
    torch.testing.assert_close(drawn.sum(-1), torch.ones(NUMBER))
    log_odds = drawn[:, 0].double().log() - drawn[:, 1].double().log()
    constant = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)

    def density(odds):
        return constant - a * np.logaddexp(0, -odds) - b * np.logaddexp(0, odds)

    edge = 40.0
    assert farthest(log_odds.clamp(-edge, edge), density, -edge, edge) < APART


def test_dirichlet_of_three():
    concentration = torch.tensor([0.3, 1.0, 6.0])
    drawn = FROM_STANDARD[ATEN._sample_dirichlet.default](concentration.expand(NUMBER, 3))
    exact = torch.distributions.Dirichlet(concentration)
    torch.testing.assert_close(drawn.mean(0), exact.mean, atol=0.005, rtol=0)
    torch.testing.assert_close(drawn.var(0), exact.variance, atol=0.001, rtol=0)


def test_choices_and_bits():
    chances = torch.tensor([0.5, 0.0, 0.2, 0.3])
    drawn = FROM_STANDARD[ATEN.multinomial.default](2 * chances.expand(NUMBER, 4), 1, True)
    assert drawn.shape == (NUMBER, 1)
    shares = torch.bincount(drawn.flatten(), minlength=4) / NUMBER
    torch.testing.assert_close(shares, chances, atol=0.01, rtol=0)
    assert shares[1] == 0
    bits = FROM_STANDARD[ATEN.bernoulli.default](chances.expand(NUMBER, 4))
    assert bits.dtype is torch.float32
    torch.testing.assert_close(bits.mean(0), chances, atol=0.01, rtol=0)
    assert FROM_STANDARD[ATEN.multinomial.default](chances, 2) is NotImplemented
