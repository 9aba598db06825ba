"""Policies and value networks: TensorDict modules that are fast to act with and to learn with.

They work with TorchRL's losses and collectors as they are, and with `hooktrainer.objectives` and
`VectorCollector` without the cost of TensorDicts and distribution objects.
"""

from .box import Box
from .categorical import CategoricalPolicy
from .deterministic import AdditiveGaussian, DeterministicPolicy
from .dynamics import DynamicsEnsemble
from .gaussian import DiagonalGaussianPolicy, TanhGaussianPolicy
from .mlp import mlp, orthogonal_init
from .normalization import RunningNorm
from .policy import Policy
from .q_network import EpsilonGreedy, QNetwork
from .value import ValueNetwork

__all__ = [
    "AdditiveGaussian",
    "Box",
    "CategoricalPolicy",
    "DeterministicPolicy",
    "DiagonalGaussianPolicy",
    "DynamicsEnsemble",
    "EpsilonGreedy",
    "Policy",
    "QNetwork",
    "RunningNorm",
    "TanhGaussianPolicy",
    "ValueNetwork",
    "mlp",
    "orthogonal_init",
]
