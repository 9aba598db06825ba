"""A hook at ``optimizer`` that computes the losses itself, and TorchRL's steppers."""

from __future__ import annotations

import pytest
import torch
import torchrl.trainers

from hooktrainer import ConfigError, NonFiniteError, TrainerHookBase
from hooktrainer.testing import ScriptedLoss, tiny_trainer


class Halves(TrainerHookBase):
    """Accumulates the gradients of two halves of the sub-batch."""

    computes_loss = True

    def __init__(self, optimizer) -> None:
        self.optimizer = optimizer
        self.sizes: list[int] = []

    def register(self, trainer, name="halves"):
        trainer.register_module(name, self)
        trainer.register_op("optimizer", self)

    def __call__(self, sub_batch, clip_grad_norm, clip_norm, index):
        together = []
        for half in sub_batch.chunk(2, -1):
            self.sizes.append(half.numel())
            losses = self.trainer.compute_loss(half)
            (losses["loss"] / 2).backward()
            together.append(losses.detach())
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack(together).mean(0)


def halving(loss, **overrides):
    trainer = tiny_trainer(loss_module=loss, optimizer=None, **overrides)
    hook = Halves(torch.optim.SGD(loss.parameters(), lr=0.1))
    hook.register(trainer)
    return trainer, hook


def test_the_loss_is_computed_by_the_hook_alone(logger):
    loss = ScriptedLoss(values=[1, 2, 3, 4])
    trainer, hook = halving(loss, total_frames=10, logger=logger)
    trainer.train()
    assert (loss.calls, hook.sizes) == (4, [6, 4, 6, 4])
    assert loss.parameter.item() == pytest.approx(-0.2)
    assert trainer.optim_count == 2
    assert logger.column("loss/loss") == {10: 2.5}  # (1.5 + 3.5) / 2, nothing of the batch
    assert not [name for _, row in logger.rows for name in row if "observation" in name]


def test_the_guard_looks_at_every_loss_before_the_step():
    loss = ScriptedLoss(values=[1, 2, 3, float("nan")])
    trainer, _ = halving(loss)
    with pytest.raises(NonFiniteError, match="optimizer step 2"):
        trainer.train()
    assert loss.parameter.item() == pytest.approx(-0.1)


def test_post_loss_is_called_when_the_losses_are_there():
    calls = []
    loss = ScriptedLoss()
    trainer, _ = halving(loss, total_frames=10, optim_steps_per_batch=1)
    trainer.register_op("post_loss", lambda td: calls.append(("post_loss", loss.calls, td.numel())))
    trainer.register_op("process_loss", lambda td, losses: calls.append(("process", td.numel())))
    trainer.register_op("post_optim_log", lambda td: calls.append(("log", td.numel())))
    trainer.train()
    assert calls == [
        *(("post_loss", 1, 6), ("process", 6)),
        *(("post_loss", 2, 4), ("process", 4)),
        ("log", 10),
    ]


def test_computing_the_loss_next_to_an_optimizer_is_an_error():
    loss = ScriptedLoss()
    trainer = tiny_trainer(loss_module=loss)
    Halves(torch.optim.SGD(loss.parameters(), lr=0.1)).register(trainer)
    with pytest.raises(ConfigError, match=r"'halves' takes the optimizer steps: .* no optimizer="):
        trainer.train()
    assert loss.calls == 0


class Stepper(torchrl.trainers.OptimizationStepper):
    """As TorchRL's documentation writes one: two forwards, one step."""

    def __init__(self, optimizer) -> None:
        self.optimizer = optimizer
        self.steps = 0

    def step(self, trainer, sub_batch):
        for _ in range(2):
            losses = trainer.compute_loss(sub_batch)
            losses["loss"].backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        return losses.detach()

    def state_dict(self):
        return {"steps": self.steps, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state_dict):
        self.steps = state_dict["steps"]


@pytest.mark.filterwarnings("ignore:the state and this trainer differ")
def test_a_stepper_of_torchrls(logger):
    loss = ScriptedLoss()
    trainer = tiny_trainer(loss_module=loss, optimizer=None, logger=logger)
    stepper = Stepper(torch.optim.SGD(loss.parameters(), lr=0.1))
    stepper.register(trainer)
    assert trainer.optimization_stepper is stepper
    trainer.train()
    assert (loss.calls, stepper.steps, trainer.optim_count) == (20, 10, 10)
    assert loss.parameter.item() == pytest.approx(-2.0)
    assert logger.column("loss/loss")[50] == 1.0
    other, again = tiny_trainer(optimizer=None), Stepper(stepper.optimizer)
    again.register(other)
    other.load_state_dict(trainer.state_dict(), strict=False)
    assert again.steps == 10


def test_torchrls_mixed_precision_stepper_goes_on_after_a_resume():
    def make(frames):
        loss = ScriptedLoss()
        adam = torch.optim.Adam(loss.parameters(), lr=0.1)
        stepper = torchrl.trainers.MixedPrecisionOptimizationStepper(
            adam, gradient_accumulation_steps=2, mixed_precision=True
        )
        trainer = tiny_trainer(loss_module=loss, optimizer=None, total_frames=frames)
        stepper.register(trainer)
        return trainer, stepper

    whole, _ = make(50)
    whole.train()
    first, _ = make(30)
    first.train()
    second, stepper = make(50)
    second.load_state_dict(first.state_dict())
    second.train()
    assert stepper.optimizer_step_count == 5
    assert second.loss_module.parameter.equal(whole.loss_module.parameter)
