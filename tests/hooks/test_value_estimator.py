from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from hooktrainer import BatchSubSampler, ValueEstimatorHook
from hooktrainer.testing import tiny_trainer


def counting(in_place: bool = True):
    calls = []

    def estimate(batch):
        calls.append(batch)
        batch = batch if in_place else batch.copy()
        return batch.set("advantage", torch.full(batch.shape, float(len(calls))))

    return estimate, calls


def test_once_a_batch():
    estimate, calls = counting()
    seen, trainer = [], tiny_trainer(num_epochs=3)
    ValueEstimatorHook(estimate).register(trainer)
    trainer.register_op("post_optim_log", lambda td: seen.append(td["advantage"].mean().item()))
    trainer.train()
    assert len(calls) == 5
    assert seen == [float(n) for n in range(1, 6) for _ in range(6)]


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "new"])
def test_again_at_every_epoch(in_place):
    estimate, calls = counting(in_place)
    seen, trainer = [], tiny_trainer(num_epochs=3, total_frames=20)
    ValueEstimatorHook(estimate, every_epoch=True).register(trainer)
    BatchSubSampler(5, sub_traj_len=5).register(trainer)
    trainer.register_op("post_optim_log", lambda td: seen.append(td["advantage"].mean().item()))
    trainer.train()
    assert len(calls) == 6
    assert seen == [float(n) for n in range(1, 7) for _ in range(2)]


def test_the_range_of_the_estimates_is_logged(logger):
    """Once a batch, of the keys of the estimator, and without padding."""

    class Estimator:
        tensor_keys = SimpleNamespace(advantage=("wolves", "advantage"), reward="gain")

        def __call__(self, batch):
            number = torch.arange(float(batch.numel())).reshape(batch.shape)
            batch[("collector", "mask")] = number < 4
            batch[("next", "gain")] = batch["value_target"] = number
            return batch.set(("wolves", "advantage"), number - 1)

    trainer = tiny_trainer(total_frames=10, num_epochs=3, logger=logger)
    ValueEstimatorHook(Estimator()).register(trainer)
    trainer.train()
    metrics = {name: trainer.metrics.reported[f"train/{name}"] for name in (
        *(f"wolves/advantage_{which}" for which in ("min", "mean", "max")),
        *(f"value_target_{which}" for which in ("min", "mean", "max")),
        "gain",
    )}  # fmt: skip
    assert list(metrics.values()) == [-1.0, 0.5, 2.0, 0.0, 1.5, 3.0, 1.5]


def unchanged(batch):
    return batch


def example(trainer):
    return ValueEstimatorHook(unchanged, every_epoch=True)
