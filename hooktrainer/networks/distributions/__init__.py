"""Distributions over actions: one for each kind of action space."""

from .action_distribution import ActionDistribution
from .continuous import Beta, DiagonalGaussian, SquashedGaussian
from .discrete import Bernoulli, Categorical, MultiCategorical
from .of_space import Joint, distribution_for
from .state_dependent import SquashedStateDependentGaussian, StateDependentGaussian

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
