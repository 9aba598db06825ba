from __future__ import annotations

import torch

from hooktrainer import ObservationNormalizer
from hooktrainer.networks import RunningNorm
from hooktrainer.testing import FakeCollector, tiny_trainer


def test_every_batch_is_counted_once_and_after_it_was_trained_on():
    norm = RunningNorm(4)
    trainer = tiny_trainer()
    counts = []
    trainer.register_op("pre_steps_log", lambda batch: counts.append(norm.count.item()))
    ObservationNormalizer(norm).register(trainer)
    trainer.train()
    assert counts == [0.0, 10.0, 20.0, 30.0, 40.0]
    batches = [batch["observation"] for batch in FakeCollector(num_batches=5)]
    torch.testing.assert_close(norm.mean, torch.cat(batches).reshape(-1, 4).double().mean(0))


def example(trainer):
    return ObservationNormalizer(RunningNorm(4))
