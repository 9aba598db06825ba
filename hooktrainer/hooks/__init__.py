"""The hooks, a file each. What is listed here is exported, documented and tested as a hook."""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .batch_sub_sampler import BatchSubSampler as BatchSubSampler
    from .clear_cuda_cache import ClearCudaCache as ClearCudaCache
    from .compiled_step import CompiledStep as CompiledStep
    from .count_frames_log import CountFramesLog as CountFramesLog
    from .curriculum import Curriculum as Curriculum
    from .distillation import Distillation as Distillation
    from .early_stopping import EarlyStopping as EarlyStopping
    from .evaluate import Evaluate as Evaluate
    from .kl_adaptive_lr import KLAdaptiveLR as KLAdaptiveLR
    from .log_episodes import LogEpisodes as LogEpisodes
    from .log_scalar import LogScalar as LogScalar
    from .log_timing import LogTiming as LogTiming
    from .log_validation_reward import LogValidationReward as LogValidationReward
    from .lr_scheduler import LRSchedulerHook as LRSchedulerHook
    from .mask import mask_batch as mask_batch
    from .mini_batches import MiniBatches as MiniBatches
    from .model_rollouts import ModelRollouts as ModelRollouts
    from .nan_guard import NanGuard as NanGuard
    from .observation_normalizer import ObservationNormalizer as ObservationNormalizer
    from .optimizer import OptimizerHook as OptimizerHook
    from .policy_snapshot import PolicySnapshot as PolicySnapshot
    from .profiler import Profiler as Profiler
    from .random_network_distillation import (
        RandomNetworkDistillation as RandomNetworkDistillation,
    )
    from .replay_buffer import ReplayBufferTrainer as ReplayBufferTrainer
    from .reward_normalizer import RewardNormalizer as RewardNormalizer
    from .reward_scaler import RewardScaler as RewardScaler
    from .run_recorder import RunRecorder as RunRecorder
    from .save_on_best import SaveOnBest as SaveOnBest
    from .schedule import Schedule as Schedule
    from .select_keys import SelectKeys as SelectKeys
    from .sequence_replay import SequenceReplay as SequenceReplay
    from .symmetry_augmentation import SymmetryAugmentation as SymmetryAugmentation
    from .target_net_updater import TargetNetUpdaterHook as TargetNetUpdaterHook
    from .tracer import Tracer as Tracer
    from .update_weights import UpdateWeights as UpdateWeights
    from .utd_ratio import UTDRHook as UTDRHook
    from .value_estimator import ValueEstimatorHook as ValueEstimatorHook
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
