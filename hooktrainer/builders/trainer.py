"""A trainer with the usual hooks."""

from __future__ import annotations

import warnings
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
from ..networks import QNetwork
from ..objectives import DQNLoss, HardUpdate, SoftUpdate
from ..replay import PrioritizedSampler, RandomSampler, ReplayBuffer, SamplerWithoutReplacement
from ..run.get_logger import get_logger
from ..trainer import Trainer
from .configs import Reader, TrainerConfig

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
    if cfg is None:
        warnings.warn(
            "make_trainer was called without cfg: the defaults of TrainerConfig are used.",
            stacklevel=2,
        )
        cfg = TrainerConfig()
    read = Reader(cfg, "make_trainer")
    frame_skip, batch_size = read("frame_skip"), read("batch_size")
    optimizer_options = {"lr": read("lr"), "weight_decay": read("weight_decay")}
    if (kind := read.one_of("optimizer", tuple(_OPTIMIZERS))) == "adam":
        optimizer_options["betas"] = tuple(read("betas", TrainerConfig.betas))
    optimizer = _OPTIMIZERS[kind](loss_module.parameters(), **optimizer_options)
    device = next(loss_module.parameters()).device
    if read("record_video", False) and not _films(recorder):
        how = "transformed_env_constructor(cfg, video_tag=..., logger=...)"
        raise read.refusal("record_video", f"needs a recorder that films: build it with {how}.")
    if logger is None:  # what the fields of a LoggerConfig name, if they are there
        name = generate_exp_name(read("exp_name", "") or "run", type(loss_module).__name__)
        logger = get_logger(read("logger", None), "runs", name)
    for each in logger if isinstance(logger, (list, tuple)) else [logger]:
        if each is not None:
            each.log_hparams(cfg)
    trainer = Trainer(
        collector=collector,
        total_frames=read("total_frames") * frame_skip,
        frame_skip=frame_skip,
        optim_steps_per_batch=read("optim_steps_per_batch"),
        loss_module=loss_module,
        optimizer=optimizer,
        logger=logger,
        clip_grad_norm=read("clip_grad_norm"),
        clip_norm=read("clip_norm", None),
        **{"log_interval": read("log_interval", 10_000)} | trainer_options,
    )
    if device.type == "cuda":
        ClearCudaCache(1).register(trainer)
    if read("noisy", False):
        from torchrl.modules import reset_noise

        trainer.register_op("pre_optim_steps", lambda: loss_module.apply(reset_noise))
    if selected := read("selected_keys", None):
        SelectKeys(list(selected)).register(trainer)
    if replay_buffer is not None:
        ReplayBufferTrainer(
            replay_buffer, batch_size, device=None if device.type == "cpu" else device
        ).register(trainer)
    else:
        BatchSubSampler(batch_size, read("sub_traj_len")).register(trainer)
        if device.type != "cpu":
            trainer.register_op(
                "process_optim_batch", lambda batch: batch.to(device), priority=AFTER
            )
    if read.one_of("lr_scheduler", ("cosine", "")) == "cosine":
        Schedule.cosine(optimizer, "lr", read("lr"), 0.0).register(trainer)
    else:
        trainer.register_op(
            "pre_steps_log", lambda _: {"train/lr": optimizer.param_groups[0]["lr"]}
        )
    if target_net_updater is not None:
        TargetNetUpdaterHook(target_net_updater).register(trainer)
    if read("normalize_rewards_online"):
        RewardNormalizer(
            scale=read("normalize_rewards_online_scale"),
            decay=read("normalize_rewards_online_decay"),
        ).register(trainer)
    if hasattr(policy_exploration, "step"):
        frames = read("frames_per_batch")
        trainer.register_op("post_steps", policy_exploration.step, frames=frames)
    if recorder is not None:
        from torchrl.envs import ExplorationType

        shared = {
            "record_interval": read("record_interval"),
            "record_frames": read("record_frames"),
            "frame_skip": frame_skip,
            "policy_exploration": policy_exploration,
            "environment": recorder,
        }
        keys = read("recorder_log_keys", None)
        LogValidationReward(log_keys=keys, **shared).register(trainer)
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
        model: The network: a `QNetwork`, for the loss of `hooktrainer.objectives`, or TorchRL's
            ``QValueActor`` or ``DistributionalQValueActor``, for TorchRL's.
        cfg: A `LossConfig`, or an object with its attributes.

    Returns:
        The loss module and its target updater, which is ``None`` with ``loss="single"``.

    Raises:
        ConfigError: If the configuration cannot work.
    """
    read = Reader(cfg, "make_dqn_loss")
    delay = read.one_of("loss", ("single", "double")) == "double"
    distributional, gamma = read("distributional", False), read("gamma")
    loss_module: Any
    if isinstance(model, QNetwork):
        if distributional:
            raise read.refusal("distributional", "needs torchrl's DistributionalQValueActor.")
        loss_function = read("loss_function")
        loss_module = DQNLoss(model, gamma=gamma, loss_function=loss_function, delay_value=delay)
        return loss_module, make_target_updater(cfg, loss_module)
    from torchrl import objectives

    if distributional:
        loss_module = objectives.DistributionalDQNLoss(model, gamma=gamma, delay_value=delay)
    else:
        space = getattr(model, "action_space", None)
        loss_module = objectives.DQNLoss(
            model, loss_function=read("loss_function"), delay_value=delay, action_space=space
        )
        loss_module.make_value_estimator(gamma=gamma)
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
        ConfigError: If ``hard_update`` is asked for without target networks.
    """
    read = Reader(cfg, "make_target_updater")
    hard, interval = read("hard_update"), read("value_network_update_interval")
    if read.one_of("loss", ("single", "double")) == "single":
        if hard:
            raise read.refusal("hard_update", "needs target networks: set cfg.loss='double'.")
        return None
    if type(loss_module).__module__.startswith("torchrl."):
        from torchrl import objectives

        if hard:
            return objectives.HardUpdate(loss_module, value_network_update_interval=interval)
        return objectives.SoftUpdate(loss_module, eps=1 - 1 / interval)
    if hard:
        return HardUpdate(loss_module, value_network_update_interval=interval)
    return SoftUpdate(loss_module, tau=1 / interval)


def make_replay_buffer(device: torch.device | str, cfg: Any) -> ReplayBuffer:
    """Build a replay buffer: uniform, prioritized or without replacement; in memory or in files.

    Args:
        device: Where samples are used. The buffer lives on the CPU; give the device to
            `ReplayBufferTrainer` as well, as `make_trainer` does.
        cfg: A `ReplayArgsConfig`, or an object with its attributes.

    Raises:
        ConfigError: If the configuration or the device cannot work.
    """
    try:
        torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"make_replay_buffer: device={device!r} is not a device.") from error
    read = Reader(cfg, "make_replay_buffer")
    size, prioritized = read("buffer_size"), read("prb")
    without_replacement = read("without_replacement", False)
    if prioritized and without_replacement:
        raise read.refusal("prb", "and cfg.without_replacement exclude each other: set one.")
    sampler: Any = RandomSampler()
    if prioritized:
        sampler = PrioritizedSampler(size, read("prb_alpha", 0.7), read("prb_beta", 0.5))
    elif without_replacement:
        sampler = SamplerWithoutReplacement()
    return ReplayBuffer(
        size,
        batch_size=read("batch_size"),
        sampler=sampler,
        scratch_dir=read("buffer_scratch_dir", None),
    )
