from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hooktrainer import Trainer
from hooktrainer.algorithms import PPO


def small_ppo(env: str, **options: Any) -> Trainer:
    """A few small batches of PPO without evaluation."""
    fields = {"num_envs": 2, "steps_per_batch": 16, "mini_batch_size": 8, "num_epochs": 2}
    fixed = {"tuned": False, "total_frames": 128, "eval_episodes": 0, "num_cells": (8,)}
    return PPO(env=env, progress_bar=False, seed=5, **{**fields, **fixed, **options}).trainer()


def assert_compiled_equals_eager(make: Callable[..., Trainer]) -> Trainer:
    """Train with and without ``compile``; return the compiled trainer."""
    ends = []
    for compile in (None, "step"):
        trainer = make(compile=compile)
        trainer.train()
        losses = {n: v for n, v in trainer.metrics.reported.items() if n.startswith("loss/")}
        ends.append((list(trainer.loss_module.parameters()), losses))
    torch.testing.assert_close(ends[1][0], ends[0][0])
    assert ends[1][1] == pytest.approx(ends[0][1], rel=1e-4, abs=1e-6)
    return trainer


def whole_and_resumed(make: Callable[[], Trainer]) -> tuple[Trainer, Trainer]:
    """A run without interruption, and one that was resumed after its first batch."""
    whole = make()
    whole.train()
    first = make()
    first.register_op("post_steps", lambda: first.request_stop("interrupted"))
    first.train()
    state = first.state_dict()
    rest = make()
    rest.load_state_dict(state)
    rest.train()
    return whole, rest
