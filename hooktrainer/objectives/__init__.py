"""Losses and value estimators on plain tensors: TorchRL's values, several times as fast.

They take the networks, batches and most important arguments of TorchRL's losses, which `Trainer`
accepts as well.
"""

from .actor_critic import DDPGLoss
from .agents import LossByGroup, QMixLoss, keys_of
from .common import Loss, Term
from .cql import CQLLoss
from .dqn import DQNLoss
from .gae import GAE, generalized_advantage_estimate
from .imitation import ImitationLoss
from .iql import IQLLoss
from .ppo import ClipPPOLoss
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
