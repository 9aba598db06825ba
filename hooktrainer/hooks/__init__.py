"""The hooks: one idea a file."""

from .batch_sub_sampler import BatchSubSampler
from .clear_cuda_cache import ClearCudaCache
from .count_frames_log import CountFramesLog
from .early_stopping import EarlyStopping
from .evaluate import Evaluate
from .log_episodes import LogEpisodes
from .log_scalar import LogScalar
from .log_timing import LogTiming
from .log_validation_reward import LogValidationReward
from .lr_scheduler import LRSchedulerHook
from .mask_batch import mask_batch
from .mini_batches import MiniBatches
from .model_rollouts import ModelRollouts
from .nan_guard import NanGuard
from .observation_normalizer import ObservationNormalizer
from .optimizer import OptimizerHook
from .policy_snapshot import PolicySnapshot
from .profiler import Profiler
from .replay_buffer import ReplayBufferTrainer
from .reward_normalizer import RewardNormalizer
from .reward_scaler import RewardScaler
from .run_recorder import RunRecorder
from .save_on_best import SaveOnBest
from .schedule import Schedule
from .select_keys import SelectKeys
from .target_net_updater import TargetNetUpdaterHook
from .tracer import Tracer
from .update_weights import UpdateWeights
from .utd_ratio import UTDRHook
from .value_estimator import ValueEstimatorHook

__all__ = [
    "BatchSubSampler",
    "ClearCudaCache",
    "CountFramesLog",
    "EarlyStopping",
    "Evaluate",
    "LRSchedulerHook",
    "LogEpisodes",
    "LogScalar",
    "LogTiming",
    "LogValidationReward",
    "MiniBatches",
    "ModelRollouts",
    "NanGuard",
    "ObservationNormalizer",
    "OptimizerHook",
    "PolicySnapshot",
    "Profiler",
    "ReplayBufferTrainer",
    "RewardNormalizer",
    "RewardScaler",
    "RunRecorder",
    "SaveOnBest",
    "Schedule",
    "SelectKeys",
    "TargetNetUpdaterHook",
    "Tracer",
    "UTDRHook",
    "UpdateWeights",
    "ValueEstimatorHook",
    "mask_batch",
]
