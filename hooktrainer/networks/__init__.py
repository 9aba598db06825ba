"""Policies and value networks: TensorDict modules that are fast to act with and to learn with.

They work with TorchRL's losses and collectors as they are, and with `hooktrainer.objectives` and
`VectorCollector` without the cost of TensorDicts and distribution objects.
"""

from .agents import (
    AgentLinear,
    AgentMLP,
    AgentsPolicy,
    CentralNetwork,
    EncodedMixer,
    JointEncoder,
    MonotonicMixer,
    SumMixer,
)
from .deterministic import AdditiveGaussian, Box, DeterministicPolicy
from .distributions import (
    ActionDistribution,
    Bernoulli,
    Beta,
    Categorical,
    DiagonalGaussian,
    Joint,
    MultiCategorical,
    SquashedGaussian,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
    distribution_for,
)
from .dynamics import DynamicsEnsemble
from .encoders import (
    DiscreteEncoder,
    EncodedNetwork,
    GridEncoder,
    ImageEncoder,
    ObservationEncoder,
    VectorEncoder,
    impala_cnn,
    nature_cnn,
    small_cnn,
)
from .inputs import copy_network, fresh_copy
from .memory import GRUMemory, LSTMMemory, Memory, MemoryTrunk, TransformerMemory, memory_for
from .mlp import mlp, orthogonal_init
from .network_factory import NetworkFactory
from .normalization import RunningNorm
from .policy import CategoricalPolicy, DiagonalGaussianPolicy, Policy, TanhGaussianPolicy
from .q_network import EpsilonGreedy, QNetwork
from .state_dependent_exploration import StateDependentExploration
from .value import ValueNetwork

__all__ = [
    "ActionDistribution",
    "AdditiveGaussian",
    "AgentLinear",
    "AgentMLP",
    "AgentsPolicy",
    "Bernoulli",
    "Beta",
    "Box",
    "Categorical",
    "CategoricalPolicy",
    "CentralNetwork",
    "DeterministicPolicy",
    "DiagonalGaussian",
    "DiagonalGaussianPolicy",
    "DiscreteEncoder",
    "DynamicsEnsemble",
    "EncodedMixer",
    "EncodedNetwork",
    "EpsilonGreedy",
    "GRUMemory",
    "GridEncoder",
    "ImageEncoder",
    "Joint",
    "JointEncoder",
    "LSTMMemory",
    "Memory",
    "MemoryTrunk",
    "MonotonicMixer",
    "MultiCategorical",
    "NetworkFactory",
    "ObservationEncoder",
    "Policy",
    "QNetwork",
    "RunningNorm",
    "SquashedGaussian",
    "SquashedStateDependentGaussian",
    "StateDependentExploration",
    "StateDependentGaussian",
    "SumMixer",
    "TanhGaussianPolicy",
    "TransformerMemory",
    "ValueNetwork",
    "VectorEncoder",
    "copy_network",
    "distribution_for",
    "fresh_copy",
    "impala_cnn",
    "memory_for",
    "mlp",
    "nature_cnn",
    "orthogonal_init",
    "small_cnn",
]
