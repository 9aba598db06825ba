"""Runs with checkpoints, whose states are laid out as a trainer's."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

from hooktrainer import RunDir
from hooktrainer.store import All, Best, CheckpointManager, rng_state


def state(frames: int, *, weight: float = 0.0, seconds: float = 1.0) -> dict[str, Any]:
    """The state of a trainer; ``seconds`` is what differs between two runs that are the same."""
    weights = torch.tensor([0.5, weight])
    return {
        "format": 1,
        "components": {
            "progress": {"frames": frames, "batches": 1, "optim_steps": 1, "seconds": seconds},
            "metrics": {
                "series": {"loss/a": {"sum": 1.0}, "time/step": {"sum": seconds}},
                "reported": {"loss/a": 1.0, "time/step": seconds},
                "pbar_names": [],
            },
            "loss_module": {"weight": weights},
            "collector": {"yielded": 3},
            "hook/optimizer": {"state": {0: {"exp_avg": weights * 2}}, "param_groups": []},
            "hook/replay_buffer": {"storage": TensorDict({"reward": weights}, [2])},
            "hook/count": {"count": 2},
            "cadence/log": {"unit": "frames", "interval": 100, "next": 100},
            "cadence/post_steps/recorder": {
                "unit": "seconds",
                "interval": 1.0,
                "next": seconds + 1.0,
            },
            "logger/0": {"crc32": hash(seconds)},
        },
        "rng": rng_state(),
    }


def damage(checkpoint: Path) -> str:
    """Flip one byte of the largest file of a checkpoint; return the file's name."""
    file = max((p for p in checkpoint.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return file.relative_to(checkpoint).as_posix()


def make_run_in(
    folder: Path, name: str = "run", returns: tuple[float, ...] = (1.0, 3.0, 2.0), **changes: float
) -> Path:
    """Make a run whose checkpoints at 100, 200, … frames have the returns given."""
    path = folder / name
    random.seed(0)  # part of the state
    RunDir.create(path)
    keep = All() | Best(1, "eval/return")
    with CheckpointManager(path / "checkpoints", keep=keep, config={"lr": 0.1}) as manager:
        for number, value in enumerate(returns, start=1):
            metrics: Mapping[str, float] = {"eval/return": value, "eval/std": float("nan")}
            tree = state(100 * number, **changes)
            manager.save(tree, frames=100 * number, optim_steps=number, metrics=metrics)
    return path
