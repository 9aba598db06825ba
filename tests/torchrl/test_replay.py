"""Replay buffers of TorchRL are saved, whatever they consist of, and go on exactly."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
import torch
import torchrl.trainers as theirs
from outcomes import same
from tensordict import TensorDict
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
)
from torchrl.data.replay_buffers import samplers as s

from hooktrainer import CheckpointError, ReplayBufferTrainer
from hooktrainer.store import load_file, save_file
from hooktrainer.testing import ScriptedLoss, tiny_trainer

pytestmark = pytest.mark.usefixtures("trees")


class Surprised(ScriptedLoss):
    """Writes priorities that depend on what was drawn."""

    def forward(self, batch):
        batch.set("td_error", batch["observation"].abs().sum(-1))
        return super().forward(batch)


def prioritized_run(hook, total_frames, storage=LazyTensorStorage):
    torch.manual_seed(0)
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=0.7, beta=0.5, storage=storage(30), batch_size=4, priority_key="td_error"
    )
    loss = Surprised()
    trainer = tiny_trainer(
        total_frames=total_frames,
        loss_module=loss,
        optimizer=torch.optim.SGD(loss.parameters(), lr=0.1),
        seed=3,
    )
    hook(buffer, flatten_tensordicts=True).register(trainer)
    drawn = []
    trainer.register_op("post_optim_log", lambda td: drawn.append(td["index"].tolist()))
    return trainer, buffer, drawn


@pytest.mark.parametrize("hook", [ReplayBufferTrainer, theirs.ReplayBufferTrainer])
@pytest.mark.parametrize("storage", [LazyTensorStorage, ListStorage])
def test_a_run_with_a_prioritized_buffer_goes_on_exactly(hook, storage, tmp_path):
    whole, whole_buffer, expected = prioritized_run(hook, 80, storage)
    whole.train()
    first, *_ = prioritized_run(hook, 50, storage)
    first.save_trainer_file = tmp_path / "state.pt"
    first.train()
    second, buffer, drawn = prioritized_run(hook, 80, storage)
    second.load_from_file(tmp_path / "state.pt")
    second.train()
    assert drawn == expected[10:]
    assert same(buffer.sampler.state_dict(), whole_buffer.sampler.state_dict())


def test_where_the_extension_does_not_load_that_is_said(monkeypatch, tmp_path):
    sampler = s.PrioritizedSampler(5, alpha=1.0, beta=1.0)
    save_file(tmp_path / "state.pt", sampler.state_dict())
    monkeypatch.setitem(sys.modules, "torchrl._torchrl", None)
    with pytest.raises(CheckpointError, match="extension does not load with torch"):
        load_file(tmp_path / "state.pt")


BUFFERS = {
    "list": lambda: TensorDictReplayBuffer(storage=ListStorage(12), batch_size=4),
    "tensor": lambda: TensorDictReplayBuffer(storage=LazyTensorStorage(12), batch_size=4),
    "memmap": lambda: TensorDictReplayBuffer(storage=LazyMemmapStorage(12), batch_size=4),
    "without replacement": lambda: TensorDictReplayBuffer(
        storage=LazyTensorStorage(12), batch_size=4, sampler=s.SamplerWithoutReplacement()
    ),
    "slices": lambda: TensorDictReplayBuffer(
        storage=LazyTensorStorage(12), batch_size=4, sampler=s.SliceSampler(slice_len=2)
    ),
    "slices without replacement": lambda: TensorDictReplayBuffer(
        storage=LazyTensorStorage(12),
        batch_size=4,
        sampler=s.SliceSamplerWithoutReplacement(slice_len=2),
    ),
    "prioritized slices": lambda: TensorDictReplayBuffer(
        storage=LazyTensorStorage(12),
        batch_size=4,
        sampler=s.PrioritizedSliceSampler(12, alpha=0.7, beta=0.5, slice_len=2),
    ),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_every_kind_of_buffer_is_saved_and_restored(name, tmp_path):
    def fill(buffer, start):
        data = {
            "obs": torch.arange(start, start + 8.0),
            "episode": torch.arange(8) // 4,
            "next": {"done": (torch.arange(8) % 4 == 3).unsqueeze(-1)},
        }
        buffer.extend(TensorDict(data, [8]))

    buffer, other = BUFFERS[name](), BUFFERS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fill(buffer, 0)
        torch.manual_seed(5)
        buffer.sample()
        hook, again = ReplayBufferTrainer(buffer), ReplayBufferTrainer(other)
        save_file(tmp_path / "state.pt", hook.state_dict())
        again.load_state_dict(load_file(tmp_path / "state.pt"))
        for each in (buffer, other):
            fill(each, 8)
        assert len(other) == len(buffer)
        draws = []
        for each in (buffer, other):
            torch.manual_seed(7)

            np.random.seed(7)
            draws.append([each.sample()["obs"].tolist() for _ in range(6)])
    assert draws[0] == draws[1]
