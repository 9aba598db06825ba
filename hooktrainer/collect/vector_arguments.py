"""The arguments of `VectorCollector`: checks, and what follows from them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from ..base.checks import check_count
from ..base.words import listed, ranges
from ..errors import ConfigError
from .restore import NOT_ASKED, Restore


def check_policy(policy: Any) -> None:
    """Refuse what cannot act."""
    if policy is not None and not (callable(policy) or hasattr(policy, "act")):
        raise ConfigError(
            f"policy={policy!r} cannot act: give a function, a module, or an object with act()."
        )


def check_counts(
    frames_per_batch: int, total_frames: int, init_random_frames: int, frame_skip: int
) -> None:
    """Refuse counts that are out of range."""
    check_count("frames_per_batch", frames_per_batch)
    check_count("frame_skip", frame_skip)
    if init_random_frames < 0:
        raise ConfigError(f"init_random_frames={init_random_frames}: pass 0 or more.")
    if total_frames < 1 and total_frames != -1:
        raise ConfigError(f"total_frames={total_frames}: pass a positive number, or -1 for no end.")


def check_workers(workers: int, stages: int) -> None:
    """Refuse numbers that make no sense."""
    check_count("stages", stages)
    if workers < 0:
        raise ConfigError(f"workers={workers}: pass 0 or more.")


def steps_per_batch(frames_per_batch: int, num_envs: int) -> int:
    """How many steps of each environment a batch has."""
    steps, rest = divmod(frames_per_batch, num_envs)
    if rest:
        raise ConfigError(
            f"frames_per_batch={frames_per_batch} is not a multiple of num_envs={num_envs}: the "
            f"next one is {(steps + 1) * num_envs}, {steps + 1} steps of each environment."
        )
    return steps


def device_of(policy: Any) -> torch.device:
    """Where the first parameter of ``policy`` is; the CPU if it has none."""
    if isinstance(policy, torch.nn.Module):
        for parameter in policy.parameters():
            return parameter.device
    return torch.device("cpu")


def warn_of_loss(restores: Sequence[Restore], names: Sequence[str]) -> None:
    """Say which environments a resumed run would not bring back, and why."""
    lost = [
        i for i, restore in enumerate(restores) if restore.method == "none" and restore != NOT_ASKED
    ]
    if lost:
        reasons = sorted({f"{names[i]}: {restores[i].reason}" for i in lost})
        warnings.warn(
            f"A resumed run cannot restore the running episodes of the environments {ranges(lost)} "
            f"({listed(reasons, most=3)}). They begin new ones; all else is exact.",
            stacklevel=3,
        )
