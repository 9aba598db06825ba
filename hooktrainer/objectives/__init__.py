"""Losses and value estimators on plain tensors: TorchRL's values, several times as fast.

They take the networks, batches and most important arguments of TorchRL's losses, which `Trainer`
accepts as well.
"""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .actor_critic import DDPGLoss as DDPGLoss
    from .agents import LossByGroup as LossByGroup
    from .agents import QMixLoss as QMixLoss
    from .agents import keys_of as keys_of
    from .common import Loss as Loss
    from .common import Term as Term
    from .decision_transformer import DTLoss as DTLoss
    from .distributional import CategoricalDQNLoss as CategoricalDQNLoss
    from .distributional import QuantileDQNLoss as QuantileDQNLoss
    from .distributional import quantile_huber as quantile_huber
    from .dqn import DQNLoss as DQNLoss
    from .dqn import PQNLoss as PQNLoss
    from .dqn import QLambda as QLambda
    from .dqn import q_lambda_return as q_lambda_return
    from .dreamer import DreamerLoss as DreamerLoss
    from .ensembles import CategoricalSACLoss as CategoricalSACLoss
    from .ensembles import CrossQLoss as CrossQLoss
    from .ensembles import REDQLoss as REDQLoss
    from .ensembles import TQCLoss as TQCLoss
    from .ensembles import XQCLoss as XQCLoss
    from .from_data import BCLoss as BCLoss
    from .from_data import CQLLoss as CQLLoss
    from .from_data import DiscreteCQLLoss as DiscreteCQLLoss
    from .from_data import DiscreteIQLLoss as DiscreteIQLLoss
    from .from_data import ImitationLoss as ImitationLoss
    from .from_data import IQLLoss as IQLLoss
    from .gae import GAE as GAE
    from .gae import VTrace as VTrace
    from .gae import generalized_advantage_estimate as generalized_advantage_estimate
    from .gae import vtrace_estimate as vtrace_estimate
    from .maddpg import MADDPGLoss as MADDPGLoss
    from .maddpg import MASACLoss as MASACLoss
    from .ppo import ClipPPOLoss as ClipPPOLoss
    from .ppo import TRPOLoss as TRPOLoss
    from .sac import DiscreteSACLoss as DiscreteSACLoss
    from .sac import SACLoss as SACLoss
    from .targets import HardUpdate as HardUpdate
    from .targets import SoftUpdate as SoftUpdate
    from .targets import target_copy as target_copy
    from .td3 import CategoricalTD3Loss as CategoricalTD3Loss
    from .td3 import TD3BCLoss as TD3BCLoss
    from .td3 import TD3Loss as TD3Loss
    from .tokens import DPOLoss as DPOLoss
    from .tokens import GRPOLoss as GRPOLoss
    from .tokens import SFTLoss as SFTLoss
    from .tokens import TokenPPOLoss as TokenPPOLoss
    from .tokens import group_advantage as group_advantage
    from .tokens import token_gae as token_gae
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
