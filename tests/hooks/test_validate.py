from __future__ import annotations

import random

import pytest
import torch
from classification import Classify, make_data, make_trainer
from tensordict import TensorDict
from torch.utils.data import DataLoader

from hooktrainer import AverageWeights, DataCollector, EarlyStopping, Every, Validate
from hooktrainer.store import Best, CheckpointManager


def example_trainer():
    return make_trainer()


def example(trainer):
    return Validate(make_data(7, seed=1), batch_size=4)


def test_means_are_over_samples_by_hand(logger):
    """7 samples in batches of 4 and 3, at the end of each epoch and of the run."""
    loss, data = Classify(dropout=0.5), make_data(7, seed=1)
    trainer = make_trainer(loss=loss, logger=logger)
    seen: list[int] = []

    def confidence(batch):
        assert not loss.training
        assert not torch.is_grad_enabled()
        seen.append(len(batch))
        return batch["x"][:, 0]

    Validate(data, {"first": confidence}, batch_size=4).register(trainer)
    trainer.train()
    assert list(logger.column("val/loss")) == [10, 20, 30]
    assert seen == [4, 3] * 3
    assert all(part.training for part in loss.modules())
    loss.eval()
    whole = loss(data)
    latest = trainer.metrics.latest
    assert latest("val/loss") == pytest.approx(whole["loss"].item())
    assert latest("val/accuracy") == pytest.approx(whole["accuracy"].mean().item())
    assert latest("val/first") == pytest.approx(data["x"][:, 0].mean().item())


def test_training_is_the_same_with_and_without_it():
    ends = []
    for validates in (False, True):
        trainer = make_trainer(loss=Classify(dropout=0.5))
        if validates:
            rows = [dict(row.items()) for row in make_data(6)]
            loader, noise = DataLoader(rows, 4, shuffle=True), {"x": lambda batch: torch.rand(())}
            Validate(loader, noise, every=Every(samples=4)).register(trainer)
        trainer.train()
        parameters = torch.cat([p.flatten() for p in trainer.loss_module.parameters()])
        ends.append((parameters.tolist(), random.random(), torch.rand(()).item()))
    assert ends[0] == ends[1]


def test_parts_of_modules_keep_their_modes():
    trainer = make_trainer(DataCollector(make_data(), 5, epochs=1))
    frozen = trainer.loss_module.net[0].eval()
    Validate(make_data(4), batch_size=4).register(trainer)
    trainer.train()
    assert not frozen.training
    assert trainer.loss_module.training


def test_the_sum_of_several_losses_is_the_loss():
    def losses(batch):
        return TensorDict({"loss_a": batch["x"].mean(), "loss_b": batch["y"].float().mean()})

    trainer, data = make_trainer(), make_data(4)
    hook = Validate(data, batch_size=4, loss_module=losses, group="test")
    hook.register(trainer)
    values = hook.validate()
    assert values["test/loss"] == pytest.approx(values["test/loss_a"] + values["test/loss_b"])
    assert values["test/loss_b"] == pytest.approx(data["y"].float().mean().item())


def test_the_best_is_kept_and_the_run_stops(tmp_path):
    manager = CheckpointManager(tmp_path / "checkpoints", keep=Best(1, "val/loss", "min"))
    options = {"checkpoints": manager, "save_trainer_interval": Every(epochs=1)}
    trainer = make_trainer(DataCollector(make_data(), 4, epochs=50), **options)
    scores = iter([3.0, 1.0, 2.0, 2.5, 4.0, 5.0])
    hook = Validate(
        make_data(4),
        batch_size=4,
        loss_module=lambda batch: TensorDict({"loss": torch.tensor(next(scores))}),
    )
    hook.register(trainer)
    EarlyStopping(monitor="val/loss", mode="min", patience=20, wait_for=0).register(trainer)
    trainer.train()
    assert trainer.stop_reason == "val/loss did not improve on 1 for 20 samples"
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir() if path.is_dir())
    assert "step_000000000020" in kept
    assert len(kept) <= 2  # the latest is kept as well


def test_averaged_weights_are_validated():
    trainer = make_trainer()
    average = AverageWeights(trainer.loss_module, decay=0.5)
    average.register(trainer)
    hook = Validate(data := make_data(7), batch_size=7, weights=average)
    hook.register(trainer)
    trainer.train()
    expected = average.averaged.module(data)["loss"].item()
    assert trainer.metrics.latest("val/loss") == pytest.approx(expected)
    assert trainer.loss_module(data)["loss"].item() != pytest.approx(expected)
