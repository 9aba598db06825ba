from __future__ import annotations

import pytest
import torch

from hooktrainer import ClearCudaCache, ConfigError
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


def test_the_count_is_saved(monkeypatch):
    cleared = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: cleared.append(True))
    one, other = ClearCudaCache(3), ClearCudaCache(3)
    one()
    one()
    other.load_state_dict(one.state_dict())
    other()
    assert cleared == [True]


def test_bad_interval():
    with pytest.raises(ConfigError, match="interval=0"):
        ClearCudaCache(0)


# -- what the conformance tests try ---------------------------------------------------------------


def example(trainer):
    return ClearCudaCache(2)
