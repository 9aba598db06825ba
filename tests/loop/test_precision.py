"""Losses in half precision: what is computed in it, what is not, and scaled gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn

from hooktrainer import ConfigError, Trainer
from hooktrainer.algorithms import PPO
from hooktrainer.optim import FlatAdam
from hooktrainer.testing import tiny_trainer


class Regression(nn.Module):
    """Notes in what types it computed."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(5, 1)
        self.factor = factor
        self.types: set[torch.dtype] = set()

    def forward(self, batch: TensorDictBase) -> TensorDictBase:
        out = self.layer(batch["observation"].expand(*batch.shape, 5))
        if not torch.compiler.is_compiling():
            self.types.add(out.dtype)
        return TensorDict({"loss": (out.sum() - 1.0) * self.factor * self.factor})


def make(precision: Any, loss: Regression, kind: str = "flat", **options: Any) -> Trainer:
    optimizer: torch.optim.Optimizer = FlatAdam(loss.parameters(), lr=0.01)
    if kind != "flat":
        optimizer = torch.optim.Adam(loss.parameters(), lr=0.01, fused=kind == "fused")
    batches = [
        TensorDict({"observation": torch.full((10, 1), 0.1 * (i + 1))}, [10]) for i in range(5)
    ]
    return tiny_trainer(
        collector=batches, loss_module=loss, optimizer=optimizer, precision=precision, **options
    )


def set_scale(trainer: Trainer, scale: float, **rest: Any) -> None:
    scaler = trainer.registry.modules["optimizer"].scaler
    if scaler is not None:
        scaler.load_state_dict(scaler.state_dict() | {"scale": scale, **rest})


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [(None, torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_layers_compute_in_half_precision_and_the_rest_stays_float32(precision, dtype, logger):
    loss = Regression()
    seen: list[torch.dtype] = []
    trainer = make(precision, loss, logger=logger)
    trainer.register_op("optimizer", lambda losses, *_: seen.append(losses["loss"].dtype))
    before = [parameter.clone() for parameter in loss.parameters()]
    trainer.train()
    assert loss.types == {dtype}
    assert set(seen) == {torch.float32}
    assert all(parameter.dtype is torch.float32 for parameter in loss.parameters())
    assert all((b != p).any() for b, p in zip(before, loss.parameters(), strict=True))
    assert logger.column("train/grad_norm")


@pytest.mark.parametrize("kind", ["flat", "fused", "plain"])
def test_scaled_gradients_equal_unscaled_ones(kind):
    left = []
    for precision in (None, "fp16"):
        loss = Regression()
        trainer = make(precision, loss, kind, clip_norm=0.5)
        set_scale(trainer, 1024.0)
        trainer.train()
        left.append([parameter.detach().clone() for parameter in loss.parameters()])
    for one, other in zip(*left, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["flat", "fused", "plain"])
def test_an_overflowing_step_is_skipped_and_lowers_the_scale(kind, logger):
    loss = Regression(factor=30.0)
    before = loss.layer.weight.detach().clone()
    trainer = make("fp16", loss, kind, logger=logger, total_frames=10, optim_steps_per_batch=1)
    hook = trainer.registry.modules["optimizer"]
    set_scale(trainer, 2.0**120)
    trainer.train()
    assert torch.equal(loss.layer.weight, before)
    assert logger.column("train/loss_scale") == {10: 2.0**120}
    assert logger.column("train/grad_norm") == {}
    assert hook.scaler.get_scale() == 2.0**119
    assert float(hook.optimizer.state[loss.layer.weight].get("step", 0)) == 0


def test_a_resume_restores_the_loss_scale():
    first = make("fp16", Regression(), total_frames=20)
    set_scale(first, 64.0, growth_interval=3)
    scaler = first.registry.modules["optimizer"].scaler
    first.train()
    state = first.state_dict()
    assert state["components"]["hook/optimizer"]["scaler"]["scale"] == 128.0
    resumed = make("fp16", Regression())
    resumed.load_state_dict(state)
    again = resumed.registry.modules["optimizer"].scaler
    assert again.state_dict() == scaler.state_dict()


def test_unknown_types_are_refused():
    with pytest.raises(ConfigError, match="precision='fp8': pass 'bf16' or 'fp16' or None"):
        tiny_trainer(precision="fp8")


SMALL: dict[str, Any] = {
    **{"num_cells": (16,), "progress_bar": False, "eval_episodes": 0, "tuned": False},
    **{"num_envs": 4, "total_frames": 300, "log_interval": 50},
}


def test_a_compiled_step_in_bfloat16_equals_the_eager_one(monkeypatch):
    """The compiled step equals the eager one, but for rounding to bfloat16."""
    left = []
    for compile in (None, "step"):
        run = PPO(
            **SMALL | {"total_frames": 80},
            env="torch/CartPole-v1",
            steps_per_batch=20,
            mini_batch_size=40,
            precision="bf16",
            compile=compile,
        )
        trainer = run.trainer()
        trainer.train()
        left.append(torch.cat([p.detach().flatten() for p in trainer.loss_module.parameters()]))
    torch.testing.assert_close(left[0], left[1], rtol=1e-2, atol=1e-2)
