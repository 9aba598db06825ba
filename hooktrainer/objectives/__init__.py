"""Losses and value estimators on plain tensors, equal to TorchRL's and several times faster.

TorchRL's own losses work with `Trainer` as they are; these take the same networks, the same batches
and the arguments that matter most.
"""

from .actor_critic import DDPGLoss
from .by_group import LossByGroup, keys_of
from .common import Loss, Term
from .cql import CQLLoss
from .dqn import DQNLoss
from .gae import GAE, generalized_advantage_estimate
from .imitation import ImitationLoss
from .iql import IQLLoss
from .ppo import ClipPPOLoss
from .qmix import QMixLoss
from .sac import SACLoss
from .targets import HardUpdate, SoftUpdate, target_copy
from .td3 import TD3Loss

__all__ = [
    "GAE",
    "CQLLoss",
    "ClipPPOLoss",
    "DDPGLoss",
    "DQNLoss",
    "HardUpdate",
    "IQLLoss",
    "ImitationLoss",
    "Loss",
    "LossByGroup",
    "QMixLoss",
    "SACLoss",
    "SoftUpdate",
    "TD3Loss",
    "Term",
    "generalized_advantage_estimate",
    "keys_of",
    "target_copy",
]
