from __future__ import annotations

import warnings

import pytest
import torch

from hooktrainer import LRSchedulerHook
from hooktrainer.testing import ScriptedLoss, tiny_trainer


def halving(**arguments):
    """A trainer of 2 steps a batch whose learning rate is halved at every scheduler step."""
    interval = arguments.pop("interval", "batch")
    loss = ScriptedLoss()
    optimizer = torch.optim.SGD(loss.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n)
    trainer = tiny_trainer(loss_module=loss, optimizer=optimizer, **arguments)
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


SCHEDULERS = torch.optim.lr_scheduler


AT_THEIR_END = [
    lambda optimizer: SCHEDULERS.LinearLR(optimizer, 1.0, 0.0, total_iters=3),
    lambda optimizer: SCHEDULERS.CosineAnnealingLR(optimizer, T_max=3, eta_min=0.1),
    lambda optimizer: SCHEDULERS.OneCycleLR(optimizer, max_lr=1.0, total_steps=3),
    lambda optimizer: SCHEDULERS.LambdaLR(optimizer, lambda n: max(0.0, 1 - n / 3)),
    lambda optimizer: SCHEDULERS.SequentialLR(
        optimizer,
        [
            SCHEDULERS.LinearLR(optimizer, 0.5, total_iters=1),
            SCHEDULERS.CosineAnnealingLR(optimizer, T_max=2, eta_min=0.1),
        ],
        milestones=[1],
    ),
]


def trained(make, total_frames, state=None):
    """A trainer that has trained, or, with a state, has begun to go on from there."""
    trainer = tiny_trainer(total_frames=total_frames)
    LRSchedulerHook(make(trainer.optimizer)).register(trainer, "mine")
    if state is None:
        trainer.train()
    else:
        trainer.load_state_dict(state)
        trainer.registry.call_all("on_train_start", trainer)
    return trainer


@pytest.mark.parametrize("make", AT_THEIR_END)
def test_a_scheduler_at_its_end_warns_when_the_run_continues(make):
    state = trained(make, 30).state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(make, 30, state)  # the run has ended, and so has the scheduler
    with pytest.warns(UserWarning, match=r"'mine': its \w+LR is at its end") as seen:
        trained(make, 60, state)
    (warning,) = seen
    assert "total_frames 30 → 60" in str(warning.message)
    assert "Register a hooktrainer.Schedule" in str(warning.message)


def of_lambdas(optimizer):
    falls = [SCHEDULERS.LambdaLR(optimizer, lambda n: 0.5**n) for _ in range(2)]
    return SCHEDULERS.SequentialLR(optimizer, falls, milestones=[2])


@pytest.mark.parametrize(
    "make", [lambda o: SCHEDULERS.LambdaLR(o, lambda n: 0.5**n), of_lambdas, AT_THEIR_END[0]]
)
def test_a_run_resumed_with_another_rate_has_the_schedule_of_that_one(make):
    def run(lr, frames, state=None):
        loss = ScriptedLoss()
        optimizer = torch.optim.SGD(loss.parameters(), lr=lr)
        trainer = tiny_trainer(loss_module=loss, optimizer=optimizer, total_frames=frames)
        hook, rates = LRSchedulerHook(make(optimizer)), []
        hook.register(trainer)
        trainer.register_op(
            "pre_steps_log", lambda batch: rates.append([rate(trainer), hook.log_lr(batch)])
        )
        if state is not None:
            trainer.load_state_dict(state)
        trainer.train()
        return trainer.state_dict(), rates

    state, _ = run(1.0, 20)
    resumed, whole = run(10.0, 60, state)[1], run(10.0, 60)[1]
    assert [used for used, _ in resumed] == pytest.approx([used for used, _ in whole[2:]])
    assert all(logged == {"train/lr": used} for used, logged in resumed)


def example(trainer):
    return LRSchedulerHook(torch.optim.lr_scheduler.StepLR(trainer.optimizer, 2))
