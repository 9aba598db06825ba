"""The configurations: plain dataclasses, each field with its meaning and default."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import torch

from ..errors import ConfigError


@dataclass(kw_only=True)
class EnvConfig:
    """An environment and its transforms; for `transformed_env_constructor`.

    Attributes:
        env_library: Where the environment comes from.
        env_name: Its id.
        env_task: Its task, with dm_control.
        frame_skip: Frames for which each action is repeated.
        noops: Maximum number of random steps after each reset.
        categorical_action_encoding: Whether discrete actions are indices instead of one-hot
            vectors.
        max_frames_per_traj: Steps after which an episode is truncated; 0 or less for no limit but
            the environment's.
        from_pixels: Whether observations are pictures.
        image_size: With from_pixels: height and width of a picture.
        center_crop: With from_pixels: height and width of the crop before that, from the centre.
        grayscale: With from_pixels: whether pictures are made grey.
        catframes: Number of stacked observations, at least 1 of pictures; 0 for no stacking.
        vecnorm: Whether observations are normalized by statistics that are updated at every step.
        norm_rewards: With vecnorm: rewards as well.
        init_env_steps: Steps of the rollouts that get_stats_random_rollout takes.
        reward_scaling: Factor of the rewards; None for no scaling.
        reward_loc: With reward_scaling: what is added to scaled rewards.
    """

    env_library: Literal["gym", "dm_control"] = "gym"
    env_name: str = "CartPole-v1"
    env_task: str = ""
    frame_skip: int = 1
    noops: int = 0
    categorical_action_encoding: bool = False
    max_frames_per_traj: int = 1_000
    from_pixels: bool = False
    image_size: int = 84
    center_crop: Sequence[int] = ()
    grayscale: bool = True
    catframes: int = 0
    vecnorm: bool = False
    norm_rewards: bool = False
    init_env_steps: int = 1_000
    reward_scaling: float | None = None
    reward_loc: float = 0.0


@dataclass(kw_only=True)
class OnPolicyCollectorConfig:
    """A collector; for `make_collector_onpolicy`.

    Attributes:
        collector_device: Device of the environments and of what is collected, or one for each
            collector.
        pin_memory: Whether to use page-locked memory: in parallel environments, or for a policy on
            CUDA.
        frames_per_batch: Frames in a batch, those of all environments together.
        total_frames: Frames after which the collector ends.
        num_workers: Environments, those of all collectors together.
        env_per_collector: Environments stepped by one process; None: one with TorchRL's, all, in
            this process, else.
        seed: Seed of the environments.
        exploration_type: How the policy acts while collecting: random, mode, mean or deterministic.
        async_collection: Whether to collect while training: off-policy, with TorchRL's
            environments.
    """

    collector_device: str | Sequence[str] = "cpu"
    pin_memory: bool = False
    frames_per_batch: int = 1_000
    total_frames: int = 1_000_000
    num_workers: int = 1
    env_per_collector: int | None = None
    seed: int = 42
    exploration_type: str = "random"
    async_collection: bool = False


@dataclass(kw_only=True)
class OffPolicyCollectorConfig(OnPolicyCollectorConfig):
    """A collector; for `make_collector_offpolicy`.

    Attributes:
        multi_step: Whether rewards are summed over several steps.
        n_steps_return: With multi_step: how many.
        init_random_frames: Frames collected with random actions first.
    """

    multi_step: bool = False
    n_steps_return: int = 3
    init_random_frames: int = 1_000


@dataclass(kw_only=True)
class ReplayArgsConfig:
    """A replay buffer; for `make_replay_buffer`.

    Attributes:
        buffer_size: Capacity, in transitions.
        batch_size: Transitions in a sample.
        prb: Whether to use prioritized replay.
        prb_alpha: With prb: exponent of the priorities; 0 for uniform sampling.
        prb_beta: With prb: exponent of the importance weights, which correct the bias; 1 for all of
            it.
        without_replacement: Whether each transition is drawn once before any is drawn again.
        buffer_scratch_dir: Directory of memory-mapped files, for buffers larger than memory.
    """

    buffer_size: int = 1_000_000
    batch_size: int = 256
    prb: bool = False
    prb_alpha: float = 0.7
    prb_beta: float = 0.5
    without_replacement: bool = False
    buffer_scratch_dir: str | None = None


@dataclass(kw_only=True)
class LossConfig:
    """A loss with target networks; for `make_dqn_loss` and `make_target_updater`.

    Attributes:
        loss: Double: targets come from delayed copies of the networks.
        distributional: Whether the loss is that of distributional Q-learning (C51).
        loss_function: Distance of a value to its target; not for a distributional loss.
        gamma: Discount factor.
        hard_update: Whether targets are updated at intervals, instead of by a soft update at every
            step.
        value_network_update_interval: With hard_update: optimizer steps between two updates;
            without: 1 / tau.
    """

    loss: Literal["single", "double"] = "double"
    distributional: bool = False
    loss_function: Literal["l1", "l2", "smooth_l1"] = "smooth_l1"
    gamma: float = 0.99
    hard_update: bool = False
    value_network_update_interval: int = 1_000


@dataclass(kw_only=True)
class _RecorderConfig:
    """Evaluations.

    Attributes:
        record_interval: Batches between two evaluations.
        record_frames: Steps of an evaluation.
        recorder_log_keys: Entries to log from evaluations; None for the reward.
    """

    record_interval: int = 1_000
    record_frames: int = 1_000
    recorder_log_keys: Sequence[Any] | None = None


@dataclass(kw_only=True)
class TrainerConfig(_RecorderConfig):
    """The loop; for `make_trainer`.

    Attributes:
        total_frames: Steps after which training ends.
        frames_per_batch: Steps in a batch, by which exploration falls.
        frame_skip: Environment frames per step.
        optim_steps_per_batch: Optimizer steps after each batch.
        batch_size: Transitions per optimizer step.
        sub_traj_len: Without a replay buffer: steps of the pieces of trajectories; 0 or less for
            whole ones.
        optimizer: Which optimizer.
        lr: Learning rate.
        betas: Adam's beta1 and beta2.
        weight_decay: Factor of the L2 penalty.
        lr_scheduler: Schedule of the learning rate: cosine annealing to zero, or none.
        clip_norm: The gradient is clipped to this; None for no clipping.
        clip_grad_norm: Whether its norm is clipped, instead of each element.
        selected_keys: Entries of a batch to keep; None for all.
        noisy: Whether the networks have noisy layers, whose noise is drawn again for every batch.
        normalize_rewards_online: Whether rewards are normalized by running statistics.
        normalize_rewards_online_scale: Factor of normalized rewards.
        normalize_rewards_online_decay: Decay of those statistics.
        log_interval: Frames in a log window.
    """

    total_frames: int = 1_000_000
    frames_per_batch: int = 1_000
    frame_skip: int = 1
    optim_steps_per_batch: int = 500
    batch_size: int = 256
    sub_traj_len: int = -1
    optimizer: Literal["adam", "sgd", "adamax"] = "adam"
    lr: float = 3e-4
    betas: tuple[float, float] = (0.0, 0.9)
    weight_decay: float = 0.0
    lr_scheduler: Literal["cosine", ""] = "cosine"
    clip_norm: float | None = 1_000.0
    clip_grad_norm: bool = False
    selected_keys: Sequence[str] | None = None
    noisy: bool = False
    normalize_rewards_online: bool = False
    normalize_rewards_online_scale: float = 1.0
    normalize_rewards_online_decay: float = 0.9999
    log_interval: int = 10_000


@dataclass(kw_only=True)
class LoggerConfig(_RecorderConfig):
    """Where metrics go, and what of evaluations; for `make_trainer`.

    Attributes:
        logger: Csv, tensorboard, mlflow, wandb or prometheus, or several; empty for none.
        exp_name: Name of the experiment, with which that of its directory begins.
        record_video: Whether evaluations are filmed, by a recorder that can.
    """

    logger: str | Sequence[str] = "csv"
    exp_name: str = ""
    record_video: bool = False


def filled(cfg: Any, *kinds: type[Any], **others: Any) -> SimpleNamespace:
    """Return fields of a configuration, with defaults for those that it lacks.

    Args:
        cfg: Any object with attributes.
        *kinds: Configurations whose fields are read.
        **others: Names and defaults of other fields.
    """
    for kind in kinds:
        others |= vars(kind())
    fields = {name: getattr(cfg, name, value) for name, value in others.items()}
    if isinstance(device := fields.get("collector_device"), torch.device):
        fields["collector_device"] = str(device)
    return SimpleNamespace(**fields)


def chosen(cfg: Any, name: str, choices: Collection[str]) -> str:
    """Return the field ``name``; raise ConfigError if it is not one of ``choices``."""
    if (value := getattr(cfg, name)) not in choices:
        raise ConfigError(f"cfg.{name}={value!r} is not one of {', '.join(map(repr, choices))}.")
    return str(value)
