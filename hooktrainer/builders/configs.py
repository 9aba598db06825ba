"""The configurations: plain dataclasses, each field with its meaning and default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..errors import ConfigError

_REQUIRED = object()


@dataclass(kw_only=True)
class EnvConfig:
    """An environment and its transforms; for `transformed_env_constructor`."""

    env_library: Literal["gym", "dm_control"] = "gym"
    """where the environment comes from"""
    env_name: str = "CartPole-v1"
    """its id"""
    env_task: str = ""
    """its task, with dm_control"""
    frame_skip: int = 1
    """frames for which each action is repeated"""
    noops: int = 0
    """maximum number of random steps after each reset"""
    categorical_action_encoding: bool = False
    """whether discrete actions are indices instead of one-hot vectors"""
    max_frames_per_traj: int = 1_000
    """steps after which an episode is truncated; 0 or less for no limit but the environment's"""

    from_pixels: bool = False
    """whether observations are pictures"""
    image_size: int = 84
    """with from_pixels: height and width of a picture"""
    center_crop: Sequence[int] = ()
    """with from_pixels: height and width of the crop before that, from the centre"""
    grayscale: bool = True
    """with from_pixels: whether pictures are made grey"""
    catframes: int = 0
    """number of stacked observations; 0 or 1 for no stacking"""

    vecnorm: bool = False
    """whether observations are normalized by statistics that are updated at every step"""
    norm_rewards: bool = False
    """with vecnorm: rewards as well"""
    init_env_steps: int = 1_000
    """steps of the rollouts that get_stats_random_rollout takes"""
    reward_scaling: float | None = None
    """factor of the rewards; None for no scaling"""
    reward_loc: float = 0.0
    """with reward_scaling: what is added to scaled rewards"""

    batch_transform: bool = True
    """whether the transforms are applied to all parallel environments at once, not in each"""


@dataclass(kw_only=True)
class OnPolicyCollectorConfig:
    """A collector; for `make_collector_onpolicy`."""

    collector_device: str | Sequence[str] = "cpu"
    """device of the environments and of what is collected, or one for each collector"""
    pin_memory: bool = False
    """whether to use page-locked memory: in parallel environments, or for a policy on CUDA"""
    frames_per_batch: int = 1_000
    """frames in a batch, those of all environments together"""
    total_frames: int = 1_000_000
    """frames after which the collector ends"""
    num_workers: int = 1
    """environments, those of all collectors together"""
    env_per_collector: int | None = None
    """environments stepped by one process; None: one with TorchRL's, all, in this process, else"""
    seed: int = 42
    """seed of the environments"""
    exploration_type: str = "random"
    """how the policy acts while collecting: random, mode, mean or deterministic"""
    async_collection: bool = False
    """whether collection goes on while training: off-policy, with TorchRL's environments"""


@dataclass(kw_only=True)
class OffPolicyCollectorConfig(OnPolicyCollectorConfig):
    """A collector; for `make_collector_offpolicy`."""

    multi_step: bool = False
    """whether rewards are summed over several steps"""
    n_steps_return: int = 3
    """with multi_step: how many"""
    init_random_frames: int = 1_000
    """frames collected with random actions first"""


@dataclass(kw_only=True)
class ReplayArgsConfig:
    """A replay buffer; for `make_replay_buffer`."""

    buffer_size: int = 1_000_000
    """capacity, in transitions"""
    batch_size: int = 256
    """transitions in a sample"""
    prb: bool = False
    """whether to use prioritized replay"""
    prb_alpha: float = 0.7
    """with prb: exponent of the priorities; 0 for uniform sampling"""
    prb_beta: float = 0.5
    """with prb: exponent of the importance weights, which correct the bias; 1 for all of it"""
    without_replacement: bool = False
    """whether each transition is drawn once before any is drawn again"""
    buffer_scratch_dir: str | None = None
    """directory of memory-mapped files, for buffers larger than memory"""


@dataclass(kw_only=True)
class LossConfig:
    """A loss with target networks; for `make_dqn_loss` and `make_target_updater`."""

    loss: Literal["single", "double"] = "double"
    """double: targets come from delayed copies of the networks"""
    distributional: bool = False
    """whether the loss is that of distributional Q-learning (C51)"""
    loss_function: Literal["l1", "l2", "smooth_l1"] = "smooth_l1"
    """distance of a value to its target; not for a distributional loss"""
    gamma: float = 0.99
    """discount factor"""
    hard_update: bool = False
    """whether targets are updated at intervals, instead of by a soft update at every step"""
    value_network_update_interval: int = 1_000
    """with hard_update: optimizer steps between two updates; without: 1 / tau"""


@dataclass(kw_only=True)
class _RecorderConfig:
    """Evaluations."""

    record_interval: int = 1_000
    """batches between two evaluations"""
    record_frames: int = 1_000
    """steps of an evaluation"""
    recorder_log_keys: Sequence[Any] | None = None
    """entries to log from evaluations; None for the reward"""


@dataclass(kw_only=True)
class TrainerConfig(_RecorderConfig):
    """The loop; for `make_trainer`."""

    total_frames: int = 1_000_000
    """steps after which training ends"""
    frames_per_batch: int = 1_000
    """steps in a batch, by which exploration falls"""
    frame_skip: int = 1
    """environment frames per step"""
    optim_steps_per_batch: int = 500
    """optimizer steps after each batch"""
    batch_size: int = 256
    """transitions per optimizer step"""
    sub_traj_len: int = -1
    """without a replay buffer: steps of the pieces of trajectories; 0 or less for whole ones"""

    optimizer: Literal["adam", "sgd", "adamax"] = "adam"
    """which optimizer"""
    lr: float = 3e-4
    """learning rate"""
    betas: tuple[float, float] = (0.0, 0.9)
    """Adam's beta1 and beta2"""
    weight_decay: float = 0.0
    """factor of the L2 penalty"""
    lr_scheduler: Literal["cosine", ""] = "cosine"
    """schedule of the learning rate: cosine annealing to zero, or none"""
    clip_norm: float | None = 1_000.0
    """the gradient is clipped to this; None for no clipping"""
    clip_grad_norm: bool = False
    """whether its norm is clipped, instead of each element"""

    selected_keys: Sequence[str] | None = None
    """entries of a batch to keep; None for all"""
    noisy: bool = False
    """whether the networks have noisy layers, whose noise is drawn anew for every batch"""
    normalize_rewards_online: bool = False
    """whether rewards are normalized by running statistics"""
    normalize_rewards_online_scale: float = 1.0
    """factor of normalized rewards"""
    normalize_rewards_online_decay: float = 0.9999
    """decay of those statistics"""

    log_interval: int = 10_000
    """frames in a log window"""


@dataclass(kw_only=True)
class LoggerConfig(_RecorderConfig):
    """Where metrics go, and what of evaluations; for `make_trainer`."""

    logger: str | Sequence[str] = "csv"
    """csv, tensorboard, mlflow or wandb, or several of these; empty for none"""
    exp_name: str = ""
    """name of the experiment, with which that of its directory begins"""
    record_video: bool = False
    """whether evaluations are filmed, by a recorder that can"""


class Reader:
    """Reads the fields of the configuration ``cfg``; ``who`` reads it, for messages."""

    def __init__(self, cfg: Any, who: str) -> None:
        self._cfg, self._who = cfg, who

    def __call__(self, name: str, default: Any = _REQUIRED) -> Any:
        """The field ``name``; raises ConfigError if there is none, and no default."""
        value = getattr(self._cfg, name, default)
        # An OmegaConf configuration without the field gives None for it.
        if value is None and default is not _REQUIRED:
            return default
        if value is _REQUIRED:
            raise ConfigError(
                f"{self._who} reads cfg.{name}, which {type(self._cfg).__name__} does not have. "
                "The dataclasses of hooktrainer.builders list every field with its default."
            )
        return value

    def refusal(self, name: str, why: str) -> ConfigError:
        """The error for a value of the field ``name`` that cannot work."""
        return ConfigError(f"{self._who}: cfg.{name}={self(name)!r} {why}")

    def devices(self, name: str) -> list[torch.device]:
        """The field ``name``, one device or several; the CPU if there is none."""
        value = self(name, "cpu")
        names = [value] if isinstance(value, (str, torch.device)) else value
        try:
            if devices := [torch.device(each) for each in names]:
                return devices
        except (TypeError, RuntimeError):
            pass
        raise self.refusal(name, "is no device and no list of devices.")

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """The field ``name``; raises ConfigError if it is not one of ``choices``."""
        if (value := self(name)) not in choices:
            raise self.refusal(name, f"is not one of {', '.join(map(repr, choices))}.")
        return str(value)
