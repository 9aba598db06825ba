"""A trainer with the usual hooks."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import ConfigError
from ..hooks import (
    BatchSubSampler,
    ClearCudaCache,
    CountFramesLog,
    LogScalar,
    LogValidationReward,
    ReplayBufferTrainer,
    RewardNormalizer,
    Schedule,
    SelectKeys,
    TargetNetUpdaterHook,
    UpdateWeights,
)
from ..log import generate_exp_name
from ..loop.hook import AFTER
from ..networks import CategoricalQNetwork, QNetwork
from ..objectives import CategoricalDQNLoss, DQNLoss, HardUpdate, SoftUpdate
from ..replay import PrioritizedSampler, RandomSampler, ReplayBuffer, SamplerWithoutReplacement
from ..run.get_logger import get_logger
from ..trainer import Trainer
from .configs import LossConfig, ReplayArgsConfig, TrainerConfig, chosen, filled

_OPTIMIZERS = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "adamax": torch.optim.Adamax,
}


def make_trainer(
    collector: Any,
    loss_module: Any,
    recorder: Any = None,
    target_net_updater: Any = None,
    policy_exploration: Any = None,
    replay_buffer: Any = None,
    logger: Any = None,
    cfg: Any = None,
    **trainer_options: Any,
) -> Trainer:
    """Build a trainer and register the usual hooks.

    Args:
        collector: The collector.
        loss_module: The loss; an optimizer for all its parameters is built.
        recorder: A TorchRL environment to evaluate in, with and without exploration.
        target_net_updater: Moves the target networks after every optimizer step.
        policy_exploration: The policy to evaluate with. If it has a method ``step``, that is called
            after every batch, with the frames in it.
        replay_buffer: The training data; without one, random parts of the batch.
        logger: One logger or several; ``()`` for none. By default those of ``cfg.logger``, if there
            is such a field (`LoggerConfig`), in a new directory ``runs/<exp_name>_…``.
        cfg: A `TrainerConfig`, or an object with its attributes and perhaps those of a
            `LoggerConfig`.
        **trainer_options: Further arguments of `Trainer`: ``seed``, ``checkpoints``, ….

    Raises:
        ConfigError: If the configuration cannot work.
    """
    given = TrainerConfig() if cfg is None else cfg
    cfg = filled(given, TrainerConfig, exp_name="", logger=None, record_video=False)
    frame_skip, batch_size = cfg.frame_skip, cfg.batch_size
    optimizer_options = {"lr": cfg.lr, "weight_decay": cfg.weight_decay}
    if (kind := chosen(cfg, "optimizer", _OPTIMIZERS)) == "adam":
        optimizer_options["betas"] = tuple(cfg.betas)
    optimizer = _OPTIMIZERS[kind](loss_module.parameters(), **optimizer_options)
    device = next(loss_module.parameters()).device
    if cfg.record_video and not _films(recorder):
        raise ConfigError(
            "cfg.record_video=True needs a recorder that films: build it with "
            "transformed_env_constructor(cfg, video_tag=..., logger=...)."
        )
    if logger is None:  # what the fields of a LoggerConfig name, if they are there
        name = generate_exp_name(cfg.exp_name or "run", type(loss_module).__name__)
        logger = get_logger(cfg.logger, "runs", name)
    trainer = Trainer(
        collector=collector,
        total_frames=cfg.total_frames * frame_skip,
        frame_skip=frame_skip,
        optim_steps_per_batch=cfg.optim_steps_per_batch,
        loss_module=loss_module,
        optimizer=optimizer,
        logger=logger,
        clip_grad_norm=cfg.clip_grad_norm,
        clip_norm=cfg.clip_norm,
        **{"log_interval": cfg.log_interval} | trainer_options,
    )
    for each in trainer.loggers:
        each.log_hparams(given)
    if device.type == "cuda":
        ClearCudaCache(1).register(trainer)
    if cfg.noisy:
        from torchrl.modules import reset_noise

        trainer.register_op("pre_optim_steps", lambda: loss_module.apply(reset_noise))
    if selected := cfg.selected_keys:
        SelectKeys(list(selected)).register(trainer)
    if replay_buffer is not None:
        ReplayBufferTrainer(
            replay_buffer, batch_size, device=None if device.type == "cpu" else device
        ).register(trainer)
    else:
        BatchSubSampler(batch_size, cfg.sub_traj_len).register(trainer)
        if device.type != "cpu":
            trainer.register_op(
                "process_optim_batch", lambda batch: batch.to(device), priority=AFTER
            )
    if chosen(cfg, "lr_scheduler", ("cosine", "")) == "cosine":
        Schedule.cosine(optimizer, "lr", cfg.lr, 0.0).register(trainer)
    else:  # another hook may schedule it
        trainer.register_op(
            "pre_steps_log", lambda _: {"train/lr": optimizer.param_groups[0]["lr"]}
        )
    if target_net_updater is not None:
        TargetNetUpdaterHook(target_net_updater).register(trainer)
    if cfg.normalize_rewards_online:
        RewardNormalizer(
            scale=cfg.normalize_rewards_online_scale,
            decay=cfg.normalize_rewards_online_decay,
        ).register(trainer)
    if hasattr(policy_exploration, "step"):
        trainer.register_op("post_steps", policy_exploration.step, frames=cfg.frames_per_batch)
    if recorder is not None:
        from torchrl.envs import ExplorationType

        shared = {
            "record_interval": cfg.record_interval,
            "record_frames": cfg.record_frames,
            "frame_skip": frame_skip,
            "policy_exploration": policy_exploration,
            "environment": recorder,
        }
        LogValidationReward(log_keys=cfg.recorder_log_keys, **shared).register(trainer)
        LogValidationReward(
            exploration_type=ExplorationType.RANDOM,
            suffix="exploration",
            out_keys={("next", "reward"): "r_evaluation_exploration"},
            **shared,
        ).register(trainer, "log_validation_reward_exploration")
    UpdateWeights(trainer.source, 1).register(trainer)
    LogScalar().register(trainer)
    CountFramesLog(frame_skip=frame_skip).register(trainer)
    return trainer


def _films(recorder: Any) -> bool:
    from torchrl.record import VideoRecorder

    transform = getattr(recorder, "transform", None)
    return transform is not None and any(isinstance(m, VideoRecorder) for m in transform.modules())


def make_dqn_loss(model: Any, cfg: Any) -> tuple[Any, Any]:
    """Build the loss of deep Q-learning.

    Args:
        model: The network: a `QNetwork` or `CategoricalQNetwork`, for the losses of
            `hooktrainer.objectives`, or TorchRL's ``QValueActor`` or
            ``DistributionalQValueActor``, for TorchRL's.
        cfg: A `LossConfig`, or an object with its attributes.

    Returns:
        The loss module and its target updater, which is ``None`` with ``loss="single"``.

    Raises:
        ConfigError: If the configuration cannot work.
    """
    cfg = filled(cfg, LossConfig)
    delay = chosen(cfg, "loss", ("single", "double")) == "double"
    if not isinstance(model, QNetwork):
        from torchrl.objectives import DistributionalDQNLoss
        from torchrl.trainers import helpers

        if not cfg.distributional:
            return helpers.make_dqn_loss(model, cfg)
        theirs = DistributionalDQNLoss(model, gamma=cfg.gamma, delay_value=delay)
        return theirs, make_target_updater(cfg, theirs)
    if cfg.distributional and not isinstance(model, CategoricalQNetwork):
        raise ConfigError(
            f"cfg.distributional=True needs a CategoricalQNetwork, not a {type(model).__name__}; "
            "or torchrl's DistributionalQValueActor."
        )
    kind = CategoricalDQNLoss if cfg.distributional else DQNLoss
    loss_module = kind(model, gamma=cfg.gamma, loss_function=cfg.loss_function, delay_value=delay)
    return loss_module, make_target_updater(cfg, loss_module)


def make_target_updater(cfg: Any, loss_module: Any) -> Any:
    """Build what moves the target networks of a loss.

    Args:
        cfg: A `LossConfig`, or an object with its attributes.
        loss_module: A loss of `hooktrainer.objectives` or of TorchRL.

    Returns:
        A ``HardUpdate`` or ``SoftUpdate`` of the library the loss comes from; ``None`` with
        ``loss="single"``, where there are no target networks.

    Raises:
        ConfigError: If ``hard_update`` is set without target networks.
    """
    cfg = filled(cfg, LossConfig)
    if type(loss_module).__module__.startswith("torchrl."):
        from torchrl.trainers import helpers

        return helpers.make_target_updater(cfg, loss_module)
    interval = cfg.value_network_update_interval
    if chosen(cfg, "loss", ("single", "double")) == "single":
        if cfg.hard_update:
            raise ConfigError("cfg.hard_update=True needs target networks: set cfg.loss='double'.")
        return None
    if cfg.hard_update:
        return HardUpdate(loss_module, value_network_update_interval=interval)
    return SoftUpdate(loss_module, tau=1 / interval)


def make_replay_buffer(device: torch.device | str, cfg: Any) -> ReplayBuffer:
    """Build a replay buffer: uniform, prioritized or without replacement; in memory or in files.

    Args:
        device: Not used: the buffer lives on the CPU, and `make_trainer` moves its samples.
        cfg: A `ReplayArgsConfig`, or an object with its attributes.

    Raises:
        ConfigError: If the configuration cannot work.
    """
    cfg = filled(cfg, ReplayArgsConfig)
    if cfg.prb and cfg.without_replacement:
        raise ConfigError("cfg.prb and cfg.without_replacement exclude each other: set one.")
    sampler: Any = RandomSampler()
    if cfg.prb:
        sampler = PrioritizedSampler(cfg.buffer_size, cfg.prb_alpha, cfg.prb_beta)
    elif cfg.without_replacement:
        sampler = SamplerWithoutReplacement()
    return ReplayBuffer(
        cfg.buffer_size,
        batch_size=cfg.batch_size,
        sampler=sampler,
        scratch_dir=cfg.buffer_scratch_dir,
    )
