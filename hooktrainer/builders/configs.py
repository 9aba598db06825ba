"""The configurations: plain dataclasses, each field with its meaning and default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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
    """its task, for dm_control"""
    frame_skip: int = 1
    """frames for which each action is repeated"""
    noops: int = 0
    """most random steps after each reset"""
    categorical_action_encoding: bool = False
    """whether discrete actions are indices instead of one-hot vectors"""
    max_frames_per_traj: int = 1_000
    """steps after which an episode of a TorchRL environment is truncated; 0 or less for no limit"""

    from_pixels: bool = False
    """whether observations are pictures"""
    image_size: int = 84
    """height and width of a picture"""
    center_crop: Sequence[int] = ()
    """height and width to cut from the middle of a picture first"""
    grayscale: bool = True
    """whether pictures lose their colours"""
    catframes: int = 0
    """observations joined over time; 0 or 1 for none"""

    vecnorm: bool = False
    """whether observations are normalized by statistics that are updated at every step"""
    norm_rewards: bool = False
    """with vecnorm: rewards as well"""
    init_env_steps: int = 1_000
    """steps of the rollouts that get_stats_random_rollout takes"""
    reward_scaling: float | None = None
    """factor of the rewards; None for none"""
    reward_loc: float = 0.0
    """what is added to scaled rewards"""

    batch_transform: bool = True
    """whether the transforms are applied to all parallel environments at once, not in each"""


@dataclass(kw_only=True)
class OnPolicyCollectorConfig:
    """A collector; for `make_collector_onpolicy`."""

    collector_device: str | Sequence[str] = "cpu"
    """device of the environments and of what is collected, or one for each collector"""
    pin_memory: bool = False
    """whether parallel environments use page-locked memory"""
    frames_per_batch: int = 1_000
    """frames in a batch, those of all environments together"""
    total_frames: int = 1_000_000
    """frames after which the collector ends"""
    num_workers: int = 1
    """environments, those of all collectors together"""
    env_per_collector: int = 1
    """environments of one collector"""
    seed: int = 42
    """seed of the environments"""
    exploration_type: str = "random"
    """how the policy acts while collecting: random, mode, mean or deterministic"""
    async_collection: bool = False
    """whether collection goes on while training; for make_collector_offpolicy"""


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
    """transitions kept; then the oldest are overwritten"""
    batch_size: int = 256
    """transitions in a sample"""
    prb: bool = False
    """whether transitions of large error are replayed more often"""
    prb_alpha: float = 0.7
    """with prb: how much the priorities count"""
    prb_beta: float = 0.5
    """with prb: how much of the bias is corrected"""
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
    """distance of a value to its target"""
    gamma: float = 0.99
    """discount factor"""
    hard_update: bool = False
    """whether targets are replaced at intervals, instead of moved a little at every step"""
    value_network_update_interval: int = 1_000
    """optimizer steps between two replacements; else targets move by one part in so many"""


@dataclass(kw_only=True)
class TrainerConfig:
    """The loop; for `make_trainer`."""

    total_frames: int = 1_000_000
    """steps after which training ends"""
    frames_per_batch: int = 1_000
    """steps in a batch, for the schedule of the learning rate"""
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
    """decays of Adam's averages"""
    weight_decay: float = 0.0
    """factor of the L2 penalty"""
    lr_scheduler: Literal["cosine", ""] = "cosine"
    """schedule of the learning rate: to zero along a cosine, or none"""
    clip_norm: float | None = 1_000.0
    """bound of the gradient; None for none"""
    clip_grad_norm: bool = False
    """whether that bounds the total norm instead of each element"""

    selected_keys: Sequence[str] | None = None
    """entries of a batch to keep; None for all"""
    noisy: bool = False
    """whether the networks have noisy layers, whose noise is drawn anew for every batch"""
    normalize_rewards_online: bool = False
    """whether rewards are normalized by running statistics"""
    normalize_rewards_online_scale: float = 1.0
    """factor of normalized rewards"""
    normalize_rewards_online_decay: float = 0.9999
    """weight of the past in those statistics"""

    log_interval: int = 10_000
    """frames in a log window"""
    record_interval: int = 1_000
    """batches between two evaluations"""
    record_frames: int = 1_000
    """steps of an evaluation"""
    recorder_log_keys: Sequence[Any] | None = None
    """entries to log from evaluations; None for the reward"""


@dataclass(kw_only=True)
class LoggerConfig:
    """Where metrics go; for `hooktrainer.get_logger`."""

    logger: str = "csv"
    """csv, tensorboard, mlflow or wandb"""
    exp_name: str = ""
    """name of the experiment"""
    record_video: bool = False
    """whether evaluations are filmed"""
    record_interval: int = 1_000
    """batches between two evaluations"""
    record_frames: int = 1_000
    """steps of an evaluation"""
    recorder_log_keys: Sequence[Any] | None = field(default=None)
    """entries to log from evaluations; None for the reward"""


class Reader:
    """Reads the fields of a configuration.

    Args:
        cfg: Any object.
        who: The function that reads, for messages.
    """

    def __init__(self, cfg: Any, who: str) -> None:
        self._cfg = cfg
        self._who = who

    def __call__(self, name: str, default: Any = _REQUIRED) -> Any:
        """The field ``name``.

        Raises:
            ConfigError: If there is none, and no default.
        """
        value = getattr(self._cfg, name, default)
        # An OmegaConf configuration without the field gives None for it.
        if value is None and default is not _REQUIRED:
            value = default
        if value is _REQUIRED:
            raise ConfigError(
                f"{self._who} reads cfg.{name}, which {type(self._cfg).__name__} does not have. "
                "The dataclasses of hooktrainer.builders list every field with its default."
            )
        return value

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """The field ``name``, which has to be one of ``choices``.

        Raises:
            ConfigError: If it is not.
        """
        value = self(name)
        if value not in choices:
            raise ConfigError(
                f"{self._who}: cfg.{name}={value!r} is not one of {', '.join(map(repr, choices))}."
            )
        return str(value)
