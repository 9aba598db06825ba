"""The hooks, one idea per file. Names listed here are exported, documented and tested as hooks."""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .adversarial_imitation import AdversarialImitation as AdversarialImitation
    from .average_weights import AverageWeights as AverageWeights
    from .clear_cuda_cache import ClearCudaCache as ClearCudaCache
    from .compiled_step import CompiledStep as CompiledStep
    from .curriculum import Curriculum as Curriculum
    from .distillation import Distillation as Distillation
    from .distillation import TeacherMixture as TeacherMixture
    from .early_stopping import EarlyStopping as EarlyStopping
    from .early_stopping import SaveOnBest as SaveOnBest
    from .evaluate import Evaluate as Evaluate
    from .evaluate import LogValidationReward as LogValidationReward
    from .hindsight_replay import HindsightReplay as HindsightReplay
    from .kl_adaptive_lr import KLAdaptiveLR as KLAdaptiveLR
    from .log_metrics import CountFramesLog as CountFramesLog
    from .log_metrics import LogEpisodes as LogEpisodes
    from .log_metrics import LogScalar as LogScalar
    from .log_metrics import LogTiming as LogTiming
    from .log_metrics import UTDRHook as UTDRHook
    from .mini_batches import BatchSubSampler as BatchSubSampler
    from .mini_batches import MiniBatches as MiniBatches
    from .mini_batches import SelectKeys as SelectKeys
    from .mini_batches import mask_batch as mask_batch
    from .mix_dataset import MixDataset as MixDataset
    from .model_rollouts import ModelRollouts as ModelRollouts
    from .multi_step_replay import MultiStepReplay as MultiStepReplay
    from .observation_normalizer import ObservationNormalizer as ObservationNormalizer
    from .optimizer import NanGuard as NanGuard
    from .optimizer import OptimizerHook as OptimizerHook
    from .policy_snapshot import PolicySnapshot as PolicySnapshot
    from .profiler import Profiler as Profiler
    from .profiler import Tracer as Tracer
    from .random_network_distillation import RandomNetworkDistillation as RandomNetworkDistillation
    from .replay_buffer import ReplayBufferTrainer as ReplayBufferTrainer
    from .replay_buffer import SequenceReplay as SequenceReplay
    from .reward_scaler import RewardNormalizer as RewardNormalizer
    from .reward_scaler import RewardScaler as RewardScaler
    from .run_recorder import RunRecorder as RunRecorder
    from .schedule import LRSchedulerHook as LRSchedulerHook
    from .schedule import Schedule as Schedule
    from .self_play import SelfPlay as SelfPlay
    from .self_play import against_random as against_random
    from .stop_when import StopWhen as StopWhen
    from .symmetry_augmentation import SymmetryAugmentation as SymmetryAugmentation
    from .target_net_updater import TargetNetUpdaterHook as TargetNetUpdaterHook
    from .trust_region import TrustRegion as TrustRegion
    from .update_weights import UpdateWeights as UpdateWeights
    from .validate import Validate as Validate
    from .value_estimator import ValueEstimatorHook as ValueEstimatorHook
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
