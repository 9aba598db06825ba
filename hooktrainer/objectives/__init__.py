"""Losses and value estimators on plain tensors, equal to TorchRL's and several times faster.

TorchRL's own losses work with `Trainer` as they are; these take the same networks, the same batches
and the arguments that matter most.
"""

from .dqn import DQNLoss
from .gae import GAE, generalized_advantage_estimate
from .ppo import ClipPPOLoss
from .sac import SACLoss
from .targets import HardUpdate, SoftUpdate

__all__ = [
    "GAE",
    "ClipPPOLoss",
    "DQNLoss",
    "HardUpdate",
    "SACLoss",
    "SoftUpdate",
    "generalized_advantage_estimate",
]
