"""A trainer whose collector works ahead: ratios, checkpoints, options."""

from __future__ import annotations

import time

import pytest
import torch
from overlap_envs import plain
from toy_envs import Counter

from hooktrainer import (
    OverlappedCollector,
    ReplayBufferTrainer,
    TargetNetUpdaterHook,
    Trainer,
    UTDRHook,
)
from hooktrainer.networks import EpsilonGreedy, QNetwork, mlp
from hooktrainer.objectives import DQNLoss, HardUpdate
from hooktrainer.replay import PrioritizedSampler, ReplayBuffer

FRAMES_PER_BATCH = 8
WARM_UP = 16
STEPS = 3  # optimizer steps a batch


class Watched(Counter):
    """Counts the steps of all environments of this process; slow if asked to be."""

    steps = 0
    seconds = 0.0

    def step(self, action):
        type(self).steps += 1
        time.sleep(self.seconds)
        return super().step(action)


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(Watched, "steps", 0)
    monkeypatch.setattr(Watched, "seconds", 0.0)
    return Watched


def make_trainer(collector=None, env=Counter, total_frames=80, **options) -> Trainer:
    """DQN with prioritized replay; after the first two batches, three optimizer steps a batch."""
    torch.manual_seed(4)
    q_network = QNetwork(mlp(2, 2, (8,)))
    policy = EpsilonGreedy(q_network, annealing_num_steps=60)
    loss = DQNLoss(q_network, gamma=0.9)
    wrap = collector or (lambda inner: inner)
    sampler = PrioritizedSampler(1000, 0.5, 0.4)
    buffer = ReplayBuffer(1000, batch_size=4, sampler=sampler, keys=loss.in_keys)
    trainer = Trainer(
        collector=wrap(
            plain(policy, env, init_random_frames=WARM_UP, restore_episodes=env is Counter)
        ),
        total_frames=total_frames,
        optim_steps_per_batch=STEPS,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-2),
        progress_bar=False,
        seed=2,
        log_interval=FRAMES_PER_BATCH,
        **options,
    )
    ReplayBufferTrainer(buffer).register(trainer)
    TargetNetUpdaterHook(HardUpdate(loss, value_network_update_interval=5)).register(trainer)
    UTDRHook(trainer).register(trainer)
    return trainer


def ahead(depth=1, mode="thread", **options):
    return lambda inner: OverlappedCollector(inner, depth, mode=mode, **options)


@pytest.mark.parametrize("slow", ["collector", "learner"])
@pytest.mark.parametrize("weights", ["fixed", "newest"])
@pytest.mark.parametrize("depth", [1, 3])
def test_the_update_to_data_ratio_is_kept_from_both_sides(slow, weights, depth, watched, logger):
    trainer = make_trainer(ahead(depth, weights=weights), watched, logger=logger)
    behind, leads = [], []
    if slow == "collector":
        watched.seconds = 0.001
    else:
        trainer.register_op("post_optim", lambda: time.sleep(0.004))

    def look() -> None:
        frames = trainer.collected_frames
        trained_on = max(0, frames - WARM_UP + FRAMES_PER_BATCH)
        behind.append(trainer.optim_count - STEPS * trained_on // FRAMES_PER_BATCH)
        leads.append(watched.steps - frames)

    trainer.register_op("post_steps", look)
    trainer.train()
    assert set(behind) == {0}  # so many updates for every frame, after every batch
    assert max(leads) <= depth * FRAMES_PER_BATCH
    if slow == "learner":
        assert max(leads) == depth * FRAMES_PER_BATCH  # it is the collector that waits
    ages = list(logger.column("data/age").values())
    assert max(ages) <= depth
    if weights == "fixed":
        assert ages[-1] == depth
    assert logger.column("write_count")[80] == 80
    # Of the last batch's updates the ratio does not know yet when it is logged.
    assert logger.column("utd_ratio")[80] == 4 * (trainer.optim_count - STEPS) / 80
