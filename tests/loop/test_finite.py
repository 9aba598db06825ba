"""Non-finite numbers on an accelerator: nothing waits, and all else is the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from no_waiting import OnDevice
from outcomes import committed
from tensordict import TensorDict, TensorDictBase

from hooktrainer import NonFiniteError, OptimizerHook, Trainer
from hooktrainer.optim import FlatAdam
from hooktrainer.store import CheckpointManager
from hooktrainer.testing import ScriptedLoss, tiny_trainer

NAN, INF = float("nan"), float("inf")


class DeviceLoss(ScriptedLoss):
    """A loss, or a gradient, on a device."""

    def __init__(self, values: Any, key: str = "loss", grads: tuple[float, ...] = (1.0,)) -> None:
        super().__init__(values, key)
        self.grads = grads

    def forward(self, batch: TensorDictBase) -> TensorDictBase:
        grad = self.grads[min(self.calls, len(self.grads) - 1)]
        moved = self.parameter - self.parameter.detach()
        moved.register_hook(lambda gradient: gradient * grad)
        value = super().forward(batch)[self.key].detach() + moved
        return TensorDict({self.key: value.as_subclass(OnDevice)}, [])


def adam(loss: torch.nn.Module, kind: str) -> torch.optim.Optimizer:
    if kind == "flat":
        return FlatAdam(loss.parameters(), lr=0.1)
    return torch.optim.Adam(loss.parameters(), lr=0.1, fused=kind == "fused")


def train(loss: ScriptedLoss, kind: str = "flat", **options: Any) -> Trainer:
    """Two steps for each batch of five frames."""
    options = {"log_interval": 1000, "total_frames": 50, **options}
    trainer = tiny_trainer(loss_module=loss, optimizer=adam(loss, kind), **options)
    trainer.train()
    return trainer


@pytest.mark.parametrize("kind", ["flat", "fused", "plain"])
@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_non_finite_loss_on_a_device_raises_the_error_of_the_cpu(kind, bad):
    values, said, left = [1.0, 1.0, 1.0, bad, 1.0], [], []
    for loss in (ScriptedLoss(values, "loss_critic"), DeviceLoss(values, "loss_critic")):
        with pytest.raises(NonFiniteError) as caught:
            train(loss, kind)
        said.append(str(caught.value))
        left.append(loss.parameter.item())
    assert said[0] == said[1]
    assert said[0].startswith(f"loss_critic is {bad} at optimizer step 4, after 20 frames")
    assert left[0] == left[1]  # three steps, and none after it
    later = loss.calls
    assert later == (4 if kind == "plain" else 10)  # to the end, where the window closes


@pytest.mark.parametrize("kind", ["flat", "fused", "plain"])
def test_a_non_finite_gradient_on_a_device_is_an_error(kind, monkeypatch):
    clip = OptimizerHook.clip
    monkeypatch.setattr(OptimizerHook, "clip", lambda *args: clip(*args).as_subclass(OnDevice))
    loss = DeviceLoss([1.0], grads=(1.0, 1.0, INF, 1.0))
    with pytest.raises(NonFiniteError, match=r"norm inf at optimizer step 3, after 20 frames"):
        train(loss, kind)
    assert loss.parameter.item() == pytest.approx(-0.2)


def test_no_window_is_logged_after_a_non_finite_loss(logger):
    with pytest.raises(NonFiniteError):
        train(DeviceLoss([1.0] * 4 + [NAN]), log_interval=20, logger=logger)
    assert [frames for frames, _ in logger.rows] == [10, 20]


def test_no_checkpoint_is_saved_after_a_non_finite_loss(tmp_path):
    with CheckpointManager(tmp_path / "checkpoints") as checkpoints, pytest.raises(NonFiniteError):
        train(DeviceLoss([1.0] * 5 + [NAN]), checkpoints=checkpoints, save_trainer_interval=10)
    assert committed(tmp_path) == [10, 20]
    assert (tmp_path / "exception.pt").exists()


def test_a_non_finite_loss_stops_all_optimizers():
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = DeviceLoss([1.0], "loss_a"), DeviceLoss([1.0, NAN], "loss_b")

        def forward(self, batch: TensorDictBase) -> TensorDictBase:
            return self.one(batch).update(self.other(batch))

    loss = Two()
    trainer = tiny_trainer(loss_module=loss, optimizer=None)
    for name, part in (("a", loss.one), ("b", loss.other)):
        hook = OptimizerHook(FlatAdam(part.parameters(), lr=0.1), [f"loss_{name}"])
        hook.register(trainer, name)
    with pytest.raises(NonFiniteError, match="loss_b is nan at optimizer step 2"):
        trainer.train()
    assert loss.one.parameter.item() == loss.other.parameter.item() == pytest.approx(-0.1)
