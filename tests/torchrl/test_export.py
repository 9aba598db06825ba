"""What `hooktrainer ckpt export --to torchrl` writes, TorchRL's trainer loads, and goes on."""

from __future__ import annotations

import warnings

import pytest
import torch
import torchrl.trainers as theirs
from saved_there import Parts, prioritized, same_priorities, their_trainer
from tensordict import TensorDict

import hooktrainer
from hooktrainer import Trainer
from hooktrainer.cli import main
from hooktrainer.replay import ReplayBuffer
from hooktrainer.store import CheckpointManager, load_file, save_file
from hooktrainer.testing import tiny_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:The collector, a torchrl"),
    pytest.mark.filterwarnings("ignore:No target network updater"),
]


def save_here(tmp_path, module, sampler=None):
    """Train here, and return the parts as they were when the checkpoint was written."""
    parts = Parts(0, module, sampler=sampler)
    trainer = parts.register(
        Trainer(**parts.arguments, checkpoints=CheckpointManager(tmp_path / "run/checkpoints"))
    )
    trainer.train()
    return parts


@pytest.mark.parametrize("module", [hooktrainer, theirs])
def test_torchrls_trainer_goes_on_from_it(module, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CKPT_BACKEND", "torch")
    there = save_here(tmp_path, module)
    out = tmp_path / "trainer.pt"
    assert main(["ckpt", "export", str(tmp_path / "run"), str(out), "--to", "torchrl"]) == 0
    said = capsys.readouterr().out
    assert "is in" in said
    assert "call loss_module.make_value_estimator there first" in said
    here = Parts(1, theirs, total_frames=140)
    here.loss.make_value_estimator()
    other = their_trainer(here)
    other.load_from_file(out)
    assert (other.collected_frames, other._optim_count) == (100, 15)
    for key, value in there.loss.state_dict().items():
        assert here.loss.state_dict()[key].equal(value)
    saved, loaded = (p.optimizer.state_dict()["state"] for p in (there, here))
    assert all(loaded[i][k].equal(saved[i][k]) for i in saved for k in saved[i])
    assert here.buffer[:]["observation"].equal(there.buffer[:]["observation"])
    hooks = here.hooks
    stats = hooks["reward_normalizer"]._reward_stats
    assert stats["decay"] == 0.9
    rewards = there.hooks["reward_normalizer"]
    ours = module is hooktrainer
    mean, std = (getattr(rewards, n) if ours else rewards._reward_stats[n] for n in ("mean", "std"))
    assert float(stats["sum"] / stats["count"]) == pytest.approx(float(mean))
    batch = TensorDict({("next", "reward"): torch.ones(10)}, [10])
    for normalizer in (hooks["reward_normalizer"], rewards):
        normalizer.update_reward_stats(batch)
    assert float(stats["std"]) == pytest.approx(float(rewards.std if ours else std), abs=0.1)
    assert hooks["count_frames_log"].frame_count == 100
    assert hooks["early_stopping"].best_score == there.hooks["early_stopping"].best_score
    assert hooks["early_stopping"]._last_improvement_frame == 20
    assert hooks["lr_scheduler"].scheduler.last_epoch == 5
    assert hooks["update_weights"].counter == 5
    assert hooks["recorder"]._count == 5
    assert here.estimator.weight.equal(there.estimator.weight)
    weights = {key: value.clone() for key, value in here.loss.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other.train()
    assert any(not here.loss.state_dict()[key].equal(value) for key, value in weights.items())
    assert (other.collected_frames, hooks["count_frames_log"].frame_count) == (140, 140)


@pytest.mark.usefixtures("trees")
def test_priorities_go_with_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CKPT_BACKEND", "torch")
    there = save_here(tmp_path, hooktrainer, prioritized())
    assert main(["ckpt", "export", str(tmp_path / "run"), str(tmp_path / "trainer.pt")]) == 0
    here = Parts(1, theirs, total_frames=140, sampler=prioritized())
    here.loss.make_value_estimator()
    trainer = their_trainer(here)
    trainer.load_from_file(tmp_path / "trainer.pt", weights_only=False)
    assert same_priorities(here.buffer, there.buffer)
    assert here.buffer.sampler._sum_tree.query(0, 100) > 100
    trainer.train()


def test_state_that_torchrl_cannot_load_is_listed(tmp_path, capsys):
    trainer = tiny_trainer(save_trainer_file=tmp_path / "state.pt")
    buffer = ReplayBuffer(20, batch_size=4)
    hooktrainer.ReplayBufferTrainer(buffer, flatten_tensordicts=True).register(trainer)
    trainer.train()
    assert main(["ckpt", "export", str(tmp_path / "state.pt"), str(tmp_path / "out.pt")]) == 0
    assert "replay_buffer: it holds a tensordict" in capsys.readouterr().out
    assert torch.load(tmp_path / "out.pt", weights_only=True)["replay_buffer"] == {}


def test_a_state_without_networks_is_refused(tmp_path, capsys):
    save_file(tmp_path / "state.pt", {"a": 1})
    assert load_file(tmp_path / "state.pt") == {"a": 1}
    assert main(["ckpt", "export", str(tmp_path / "state.pt"), str(tmp_path / "out.pt")]) == 2
    assert "does not hold the state of a trainer" in capsys.readouterr().err
    assert not (tmp_path / "out.pt").exists()
