"""Distributions over actions: one for each kind of action space."""

from .action_distribution import ActionDistribution
from .continuous import (
    Beta,
    DiagonalGaussian,
    SquashedGaussian,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
)
from .discrete import Bernoulli, Categorical, MultiCategorical
from .of_space import Joint, distribution_for

__all__ = [
    "ActionDistribution",
    "Bernoulli",
    "Beta",
    "Categorical",
    "DiagonalGaussian",
    "Joint",
    "MultiCategorical",
    "SquashedGaussian",
    "SquashedStateDependentGaussian",
    "StateDependentGaussian",
    "distribution_for",
]
