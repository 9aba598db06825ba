from __future__ import annotations

import torch

from hooktrainer import ClearCudaCache
from hooktrainer.testing import tiny_trainer


def test_every_third_batch_before_the_optimizer_steps(monkeypatch):
    cleared = []
    trainer = tiny_trainer(total_frames=70)
    monkeypatch.setattr(
        torch.cuda, "empty_cache", lambda: cleared.append((trainer.collected_frames, "before"))
    )
    ClearCudaCache(3).register(trainer)
    trainer.train()
    assert cleared == [(30, "before"), (60, "before")]


def example(trainer):
    return ClearCudaCache(2)
