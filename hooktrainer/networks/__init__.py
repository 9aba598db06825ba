"""Policies and value networks: TensorDict modules that are fast to act with and to train.

They work with TorchRL's losses and collectors. `hooktrainer.objectives` and `VectorCollector` call
them without TensorDicts and distribution objects.
"""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .agents import AgentMLP as AgentMLP
    from .agents import AgentsMemory as AgentsMemory
    from .agents import AgentsPolicy as AgentsPolicy
    from .agents import CentralNetwork as CentralNetwork
    from .agents import CentralQNetwork as CentralQNetwork
    from .agents import EncodedMixer as EncodedMixer
    from .agents import JointEncoder as JointEncoder
    from .agents import MonotonicMixer as MonotonicMixer
    from .agents import SumMixer as SumMixer
    from .agents import WithPresence as WithPresence
    from .decision_transformer import DecisionTransformer as DecisionTransformer
    from .decision_transformer import DecisionTransformerPolicy as DecisionTransformerPolicy
    from .deterministic import AdditiveGaussian as AdditiveGaussian
    from .deterministic import Box as Box
    from .deterministic import DeterministicPolicy as DeterministicPolicy
    from .deterministic import PerEnvGaussian as PerEnvGaussian
    from .distributions.continuous import Beta as Beta
    from .distributions.continuous import DiagonalGaussian as DiagonalGaussian
    from .distributions.continuous import SquashedGaussian as SquashedGaussian
    from .distributions.continuous import (
        SquashedStateDependentGaussian as SquashedStateDependentGaussian,
    )
    from .distributions.continuous import StateDependentGaussian as StateDependentGaussian
    from .distributions.discrete import ActionDistribution as ActionDistribution
    from .distributions.discrete import Bernoulli as Bernoulli
    from .distributions.discrete import Categorical as Categorical
    from .distributions.discrete import MultiCategorical as MultiCategorical
    from .distributions.of_space import Joint as Joint
    from .distributions.of_space import distribution_for as distribution_for
    from .dynamics import DynamicsEnsemble as DynamicsEnsemble
    from .encoders import DiscreteEncoder as DiscreteEncoder
    from .encoders import EncodedNetwork as EncodedNetwork
    from .encoders import GridEncoder as GridEncoder
    from .encoders import ImageEncoder as ImageEncoder
    from .encoders import ObservationEncoder as ObservationEncoder
    from .encoders import VectorEncoder as VectorEncoder
    from .encoders import impala_cnn as impala_cnn
    from .encoders import nature_cnn as nature_cnn
    from .encoders import small_cnn as small_cnn
    from .ensemble import BatchRenorm as BatchRenorm
    from .ensemble import Ensemble as Ensemble
    from .ensemble import UnitLinear as UnitLinear
    from .ensemble import batch_statistics as batch_statistics
    from .ensemble import project_weights as project_weights
    from .ensemble import unit_mlp as unit_mlp
    from .language_model import Cache as Cache
    from .language_model import LanguageModel as LanguageModel
    from .language_model import Sampling as Sampling
    from .language_model import packed as packed
    from .language_model import padded as padded
    from .layers import AgentLinear as AgentLinear
    from .layers import RunningNorm as RunningNorm
    from .layers import add_layer_norms as add_layer_norms
    from .layers import copy_network as copy_network
    from .layers import fresh_copy as fresh_copy
    from .layers import mlp as mlp
    from .layers import orthogonal_init as orthogonal_init
    from .memory import MEMORIES as MEMORIES
    from .memory import GRUMemory as GRUMemory
    from .memory import LSTMMemory as LSTMMemory
    from .memory import Memory as Memory
    from .memory import MemoryTrunk as MemoryTrunk
    from .memory import TransformerMemory as TransformerMemory
    from .memory import memory_for as memory_for
    from .network_factory import NetworkFactory as NetworkFactory
    from .policy import CategoricalPolicy as CategoricalPolicy
    from .policy import DiagonalGaussianPolicy as DiagonalGaussianPolicy
    from .policy import Policy as Policy
    from .policy import StateDependentExploration as StateDependentExploration
    from .policy import TanhGaussianPolicy as TanhGaussianPolicy
    from .q_heads import DuelingHead as DuelingHead
    from .q_heads import FractionEmbedding as FractionEmbedding
    from .q_heads import NoisyLinear as NoisyLinear
    from .q_heads import q_head as q_head
    from .q_network import CategoricalQNetwork as CategoricalQNetwork
    from .q_network import DistributionalQNetwork as DistributionalQNetwork
    from .q_network import EpsilonGreedy as EpsilonGreedy
    from .q_network import QNetwork as QNetwork
    from .q_network import QuantileQNetwork as QuantileQNetwork
    from .q_network import ValueNetwork as ValueNetwork
    from .self_play import SelfPlayPolicy as SelfPlayPolicy
    from .transformer import CausalTransformer as CausalTransformer
    from .transformers_model import TransformersModel as TransformersModel
    from .world_model import TwoHot as TwoHot
    from .world_model import WorldModel as WorldModel
    from .world_model import WorldModelPolicy as WorldModelPolicy
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
