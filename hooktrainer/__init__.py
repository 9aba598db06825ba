"""hooktrainer: a hook-based trainer for reinforcement learning in PyTorch."""

from .cadence import Every
from .errors import ConfigError, HookError, NonFiniteError, StateMismatchError
from .hook import TrainerHookBase
from .hook_points import HOOK_POINTS, HookPoint
from .hooks import (
    BatchSubSampler,
    ClearCudaCache,
    CountFramesLog,
    EarlyStopping,
    LogScalar,
    LogTiming,
    LogValidationReward,
    LRSchedulerHook,
    MiniBatches,
    NanGuard,
    OptimizerHook,
    ReplayBufferTrainer,
    RewardNormalizer,
    SelectKeys,
    TargetNetUpdaterHook,
    UpdateWeights,
    UTDRHook,
    ValueEstimatorHook,
    mask_batch,
)
from .metrics import Latest
from .trainer import Trainer

__version__ = "0.1.0"

__all__ = [
    "HOOK_POINTS",
    "BatchSubSampler",
    "ClearCudaCache",
    "ConfigError",
    "CountFramesLog",
    "EarlyStopping",
    "Every",
    "HookError",
    "HookPoint",
    "LRSchedulerHook",
    "Latest",
    "LogScalar",
    "LogTiming",
    "LogValidationReward",
    "MiniBatches",
    "NanGuard",
    "NonFiniteError",
    "OptimizerHook",
    "ReplayBufferTrainer",
    "RewardNormalizer",
    "SelectKeys",
    "StateMismatchError",
    "TargetNetUpdaterHook",
    "Trainer",
    "TrainerHookBase",
    "UTDRHook",
    "UpdateWeights",
    "ValueEstimatorHook",
    "mask_batch",
]
