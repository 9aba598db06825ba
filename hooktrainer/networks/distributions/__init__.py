"""Distributions over actions: one for each kind of action space."""

from .continuous import (
    Beta,
    DiagonalGaussian,
    SquashedGaussian,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
)
from .discrete import ActionDistribution, Bernoulli, Categorical, MultiCategorical
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
