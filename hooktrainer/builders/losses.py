"""Losses and their target networks."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import ConfigError
from ..networks import QNetwork
from ..objectives import DQNLoss, HardUpdate, SoftUpdate
from ..replay import PrioritizedSampler, RandomSampler, ReplayBuffer, SamplerWithoutReplacement
from .configs import Reader


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
    distributional = read("distributional", False)
    loss_module: Any
    if isinstance(model, QNetwork):
        if distributional:
            raise ConfigError(
                "make_dqn_loss: cfg.distributional=True needs a network of distributions, "
                "torchrl.modules.DistributionalQValueActor; a QNetwork has single values."
            )
        loss_module = DQNLoss(
            model,
            gamma=read("gamma"),
            loss_function=read("loss_function"),
            delay_value=delay,
        )
    else:
        from torchrl import objectives

        if distributional:
            loss_module = objectives.DistributionalDQNLoss(
                model, gamma=read("gamma"), delay_value=delay
            )
        else:
            loss_module = objectives.DQNLoss(
                model,
                loss_function=read("loss_function"),
                delay_value=delay,
                action_space=getattr(model, "action_space", None),
            )
            loss_module.make_value_estimator(gamma=read("gamma"))
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
            raise ConfigError(
                "make_target_updater: cfg.hard_update=True needs target networks: set "
                "cfg.loss='double', or cfg.hard_update=False."
            )
        return None
    if type(loss_module).__module__.startswith("torchrl."):
        from torchrl.objectives import HardUpdate as TorchRLHardUpdate
        from torchrl.objectives import SoftUpdate as TorchRLSoftUpdate

        if hard:
            return TorchRLHardUpdate(loss_module, value_network_update_interval=interval)
        return TorchRLSoftUpdate(loss_module, eps=1 - 1 / interval)
    if hard:
        return HardUpdate(loss_module, value_network_update_interval=interval)
    return SoftUpdate(loss_module, tau=1 / interval)


# -- Replay buffers.


def make_replay_buffer(device: torch.device | str, cfg: Any) -> ReplayBuffer:
    """Build a replay buffer: uniform, prioritized or without replacement; in memory or in files.

    It is always `hooktrainer.replay.ReplayBuffer`, which samples faster than TorchRL's buffers do
    with a prefetching thread, and is restored exactly.

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
        raise ConfigError(
            "make_replay_buffer: cfg.prb and cfg.without_replacement exclude each other: set one."
        )
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
