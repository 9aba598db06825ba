"""The names of the package, each imported from where it is at home."""

from __future__ import annotations

from .cadence import Every
from .collectors import OverlappedCollector, VectorCollector
from .errors import CheckpointError, ConfigError, HookError, NonFiniteError, StateMismatchError
from .hook import TrainerHookBase
from .hook_points import HOOK_POINTS, HookPoint
from .hooks import (
    BatchSubSampler,
    ClearCudaCache,
    CountFramesLog,
    EarlyStopping,
    Evaluate,
    LogEpisodes,
    LogScalar,
    LogTiming,
    LogValidationReward,
    LRSchedulerHook,
    MiniBatches,
    ModelRollouts,
    NanGuard,
    ObservationNormalizer,
    OptimizerHook,
    PolicySnapshot,
    Profiler,
    ReplayBufferTrainer,
    RewardNormalizer,
    RewardScaler,
    RunRecorder,
    SaveOnBest,
    SelectKeys,
    TargetNetUpdaterHook,
    Tracer,
    UpdateWeights,
    UTDRHook,
    ValueEstimatorHook,
    mask_batch,
)
from .loggers import generate_exp_name, get_logger
from .metrics import Latest, Samples
from .plugins import available_hooks
from .policies import (
    LoadedPolicy,
    SavedPolicy,
    find_policy,
    list_policies,
    load_policy,
    play_episodes,
)
from .run_dir import RunDir
from .trainer import Trainer

__all__ = [
    "HOOK_POINTS",
    "BatchSubSampler",
    "CheckpointError",
    "ClearCudaCache",
    "ConfigError",
    "CountFramesLog",
    "EarlyStopping",
    "Evaluate",
    "Every",
    "HookError",
    "HookPoint",
    "LRSchedulerHook",
    "Latest",
    "LoadedPolicy",
    "LogEpisodes",
    "LogScalar",
    "LogTiming",
    "LogValidationReward",
    "MiniBatches",
    "ModelRollouts",
    "NanGuard",
    "NonFiniteError",
    "ObservationNormalizer",
    "OptimizerHook",
    "OverlappedCollector",
    "PolicySnapshot",
    "Profiler",
    "ReplayBufferTrainer",
    "RewardNormalizer",
    "RewardScaler",
    "RunDir",
    "RunRecorder",
    "Samples",
    "SaveOnBest",
    "SavedPolicy",
    "SelectKeys",
    "StateMismatchError",
    "TargetNetUpdaterHook",
    "Tracer",
    "Trainer",
    "TrainerHookBase",
    "UTDRHook",
    "UpdateWeights",
    "ValueEstimatorHook",
    "VectorCollector",
    "available_hooks",
    "find_policy",
    "generate_exp_name",
    "get_logger",
    "list_policies",
    "load_policy",
    "mask_batch",
    "play_episodes",
]
