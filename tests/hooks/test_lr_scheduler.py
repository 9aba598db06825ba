from __future__ import annotations

import pytest
import torch

from hooktrainer import ConfigError, LRSchedulerHook
from hooktrainer.testing import FakeCollector, ScriptedLoss, make_trainer


def halving(**arguments):
    """A trainer of 2 steps a batch whose learning rate is halved at every scheduler step."""
    interval = arguments.pop("interval", "batch")
    loss = ScriptedLoss()
    optimizer = torch.optim.SGD(loss.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n)
    trainer = make_trainer(loss_module=loss, optimizer=optimizer, **arguments)
    LRSchedulerHook(scheduler, interval).register(trainer)
    return trainer


def rate(trainer) -> float:
    return trainer.optimizer.param_groups[0]["lr"]


def test_once_a_batch(logger):
    trainer = halving(total_frames=30, logger=logger, log_interval=10)
    trainer.train()
    assert rate(trainer) == 0.125
    assert logger.column("train/lr") == {10: 1.0, 20: 0.5, 30: 0.25}
    # the parameter moved by 2·1 + 2·½ + 2·¼
    assert trainer.loss_module.parameter.item() == pytest.approx(-3.5)


def test_once_an_optimizer_step():
    trainer = halving(total_frames=20, interval="optim")
    trainer.train()
    assert rate(trainer) == 0.0625
    assert trainer.loss_module.parameter.item() == pytest.approx(-1.875)


def test_a_batch_without_a_step_does_not_count():
    collector = FakeCollector()
    collector.init_random_frames = 30  # the first two batches are not trained on
    trainer = halving(total_frames=40, collector=collector)
    trainer.train()
    assert rate(trainer) == 0.25


def test_it_resumes():
    whole = halving(total_frames=60)
    whole.train()
    first = halving(total_frames=30)
    first.train()
    second = halving(total_frames=60)
    second.load_state_dict(first.state_dict())
    second.train()
    assert rate(second) == rate(whole) == 0.5**6
    assert second.loss_module.parameter.item() == whole.loss_module.parameter.item()


def test_bad_interval():
    with pytest.raises(ConfigError, match="interval='epoch'"):
        LRSchedulerHook(None, "epoch")
