"""Stages that only TorchRL's trainer has are served at the ten points, in TorchRL's order."""

from __future__ import annotations

import pytest
import torch

from hooktrainer import ConfigError, Every
from hooktrainer.testing import ScriptedLoss, tiny_trainer

STAGES = ("post_epoch", "post_epoch_log", "post_optim_complete_log", "pre_epoch", "pre_epoch_log")
STAGES += ("process_loss", "setup", "shutdown")


def trainer_that_writes(calls, **overrides):
    """A trainer with a hook at every stage and at the points around them, which writes it down."""
    trainer = tiny_trainer(total_frames=20, num_epochs=2, **overrides)
    record = calls.append
    trainer.register_op("pre_optim_steps", lambda: record("pre_optim_steps"))
    trainer.register_op("process_optim_batch", lambda td: record("sample") or td)
    trainer.register_op("post_optim", lambda: record("post_optim"))
    trainer.register_op("post_steps", lambda: record("post_steps"))
    for stage in ("pre_epoch", "pre_epoch_log", "post_epoch_log"):
        trainer.register_op(stage, lambda td, stage=stage: record(stage))
    for stage in ("setup", "shutdown", "post_epoch"):
        trainer.register_op(stage, lambda stage=stage: record(stage))
    trainer.register_op("process_loss", lambda td, losses: record("process_loss"))
    trainer.register_op("post_optim_complete_log", lambda n, losses: record("complete"))
    return trainer


def test_the_order_is_torchrls():
    calls: list[str] = []
    trainer_that_writes(calls).train()
    step = ["sample", "process_loss", "post_optim"]
    epoch = ["pre_epoch_log", "pre_epoch", *step, *step, "post_epoch_log", "post_epoch"]
    batch = ["pre_optim_steps", *epoch, *epoch, "complete", "post_steps"]
    assert calls == ["setup", *batch, *batch, "shutdown"]


def test_pre_epoch_makes_the_batch_that_is_sampled_anew_each_epoch():
    made, seen = [], []

    def renew(batch):
        made.append(float(len(made)))
        return batch.clone().set("made", torch.full(batch.shape, made[-1]))

    trainer = tiny_trainer(total_frames=20, num_epochs=2)
    trainer.register_op("pre_epoch", renew)
    trainer.register_op("pre_epoch", lambda batch: batch.set("made", batch["made"] + 10))
    trainer.register_op("post_optim_log", lambda td: seen.append(td["made"][0, 0].item()))
    trainer.register_op("post_steps_log", lambda td: seen.append("made" in td))
    trainer.train()
    assert seen == [10, 10, 11, 11, False, 12, 12, 13, 13, False]


@pytest.mark.parametrize("stage", ["pre_epoch_log", "post_epoch_log"])
def test_the_epoch_logs_are_logged(stage, logger):
    trainer = tiny_trainer(total_frames=10, num_epochs=2, logger=logger)
    values = iter([1.0, 4.0])
    trainer.register_op(stage, lambda td: {"value": next(values)})
    trainer.train()
    assert logger.column("value") == {10: 2.5}


def test_the_mean_losses_of_a_batch(logger):
    got = []

    def look(optim_steps, losses):
        got.append((optim_steps, losses["loss"].item(), losses.requires_grad))
        return {"extra": 7.0}

    loss = ScriptedLoss(values=[1, 2, 3, 4])
    trainer = tiny_trainer(loss_module=loss, total_frames=20, logger=logger)
    trainer.register_op("post_optim_complete_log", look)
    trainer.train()
    assert got == [(2, 1.5, False), (4, 3.5, False)]
    assert logger.column("extra") == {10: 7.0, 20: 7.0}


def test_process_loss_gets_the_sub_batch_and_the_optimizer_its_result():
    def weigh(sub_batch, losses):
        assert sub_batch["observation"].shape == (2, 5, 4)
        return losses.apply(lambda loss: 3 * loss)

    trainer = tiny_trainer(total_frames=10, optim_steps_per_batch=1)
    trainer.register_op("process_loss", weigh)
    trainer.train()
    assert trainer.loss_module.parameter.item() == pytest.approx(-0.3)


class Counting:
    """Has state, and no name but that of its class."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, *args) -> None:
        self.n += 1

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state_dict):
        self.n = state_dict["n"]


@pytest.mark.parametrize("stage", STAGES)
def test_an_op_with_state_is_saved_once_and_restored(stage):
    trainer, hook = tiny_trainer(), Counting()
    trainer.register_op(stage, hook)
    trainer.train()
    assert hook.n > 0
    state = trainer.state_dict()
    assert [n for n in state["components"] if n.startswith("hook/")][-1] == "hook/counting"
    other, again = tiny_trainer(), Counting()
    other.register_op(stage, again)
    other.load_state_dict(state)
    assert again.n == hook.n


@pytest.mark.parametrize("stage", STAGES)
def test_a_handle_removes_the_op_of_a_stage(stage):
    trainer, hook = tiny_trainer(), Counting()
    handle = trainer.register_op(stage, hook)
    handle.remove()
    handle.remove()
    trainer.train()
    assert hook.n == 0
    assert "hook/counting" not in trainer.state_dict()["components"]


def test_a_cadence_is_refused():
    with pytest.raises(ConfigError, match="pre_epoch is a stage of torchrl's"):
        tiny_trainer().register_op("pre_epoch", lambda td: td, every=Every(batches=2))
