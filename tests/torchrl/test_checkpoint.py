"""A checkpoint that TorchRL's trainer wrote goes on here."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import Categorical, LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss as TorchRLDQNLoss
from torchrl.objectives import SoftUpdate as TorchRLSoftUpdate
from torchrl.trainers import ReplayBufferTrainer as TorchRLReplayBufferTrainer
from torchrl.trainers import TargetNetUpdaterHook as TorchRLTargetNetUpdaterHook
from torchrl.trainers import Trainer as TorchRLTrainer

from hooktrainer import (
    ReplayBufferTrainer,
    StateMismatchError,
    TargetNetUpdaterHook,
    Trainer,
    VectorCollector,
)
from hooktrainer.networks import EpsilonGreedy, QNetwork
from hooktrainer.objectives import DQNLoss, SoftUpdate
from hooktrainer.replay import ReplayBuffer


def torchrl_parts(seed: int, total_frames: int = 100):
    torch.manual_seed(seed)
    actor = QValueActor(nn.Linear(4, 2), in_keys=["observation"], spec=Categorical(2))
    collector = Collector(
        GymEnv("CartPole-v1", categorical_action_encoding=True),
        actor,
        frames_per_batch=20,
        total_frames=total_frames,
        auto_register_policy_transforms=False,
    )
    loss = TorchRLDQNLoss(actor, action_space="categorical", delay_value=True)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(60), batch_size=8)
    return collector, loss, torch.optim.Adam(loss.parameters(), lr=1e-2), buffer


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file, and the parts it was written from."""
    path = tmp_path_factory.mktemp("torchrl") / "trainer.pt"
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("CKPT_BACKEND", "torch")
        collector, loss, optimizer, buffer = torchrl_parts(0)
        trainer = TorchRLTrainer(
            collector=collector,
            total_frames=100,
            frame_skip=1,
            optim_steps_per_batch=3,
            loss_module=loss,
            optimizer=optimizer,
            progress_bar=False,
            save_trainer_file=str(path),
            save_trainer_interval=10,
        )
        TorchRLReplayBufferTrainer(buffer, 8, flatten_tensordicts=True).register(
            trainer, "replay_buffer"
        )
        TorchRLTargetNetUpdaterHook(TorchRLSoftUpdate(loss, eps=0.9)).register(trainer, "target")
        trainer.train()
    return path, loss, optimizer, buffer


def same_state(first, second) -> bool:
    return all(
        a[key].equal(b[key])
        for a, b in zip(first["state"].values(), second["state"].values(), strict=True)
        for key in ("step", "exp_avg", "exp_avg_sq")
    )


def test_into_our_own_parts(saved):
    path, their_loss, their_optimizer, their_buffer = saved
    q_network = QNetwork(nn.Linear(4, 2))
    loss = DQNLoss(q_network)
    buffer = ReplayBuffer(200, batch_size=8, keys=loss.in_keys)
    trainer = Trainer(
        collector=VectorCollector(
            "CartPole-v1", EpsilonGreedy(q_network), num_envs=2, frames_per_batch=20
        ),
        total_frames=120,
        optim_steps_per_batch=1,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-2),
        progress_bar=False,
    )
    ReplayBufferTrainer(buffer).register(trainer)
    TargetNetUpdaterHook(SoftUpdate(loss, eps=0.9)).register(trainer, "other_name")
    with pytest.warns(UserWarning, match="the collector begins new ones"):
        trainer.load_from_file(path)
    theirs = their_loss.state_dict()
    assert q_network.network.weight.equal(theirs["value_network_params.module.0.module.weight"])
    assert loss.target_value_network.network.bias.equal(
        theirs["target_value_network_params.module.0.module.bias"]
    )
    assert same_state(trainer.optimizer.state_dict(), their_optimizer.state_dict())
    # The oldest first: TorchRL's ring of 60 holds the last 60 of 100, from its cursor on.
    newest = their_buffer[:]["observation"].roll(-(100 % 60), 0)
    assert buffer._storage[:60]["observation"].equal(newest)
    trainer.train()
    assert trainer.collected_frames == 120


def test_other_networks_are_refused_and_nothing_changes(saved):
    path, *_ = saved
    collector, *_ = torchrl_parts(1)
    wide = QValueActor(nn.Linear(6, 2), in_keys=["observation"], spec=Categorical(2))
    wide_loss = TorchRLDQNLoss(wide, action_space="categorical", delay_value=True)
    before = {k: v.clone() for k, v in wide_loss.state_dict().items()}
    trainer = Trainer(
        collector=collector,
        total_frames=140,
        optim_steps_per_batch=3,
        loss_module=wide_loss,
        optimizer=torch.optim.Adam(wide_loss.parameters()),
        progress_bar=False,
    )
    with pytest.raises(StateMismatchError, match=r"\(2, 4\) there, \(2, 6\) here"):
        trainer.load_from_file(path)
    assert all(wide_loss.state_dict()[k].equal(v) for k, v in before.items())
    assert trainer.collected_frames == 0
    trainer.shutdown()
