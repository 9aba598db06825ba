"""Replay buffers."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import ConfigError
from ..replay import PrioritizedSampler, RandomSampler, ReplayBuffer, SamplerWithoutReplacement
from .configs import Reader


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
