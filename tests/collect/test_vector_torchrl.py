"""Batches and collector in TorchRL's hands: GAE, losses, replay buffers, its own trainer."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE
from toy_envs import Counter

from hooktrainer import VectorCollector


def actor() -> ProbabilisticActor:
    return ProbabilisticActor(
        TensorDictModule(nn.Linear(4, 2), ["observation"], ["logits"]),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )


def critic(features: int = 4) -> ValueOperator:
    return ValueOperator(nn.Linear(features, 1), in_keys=["observation"])


@pytest.mark.parametrize("truncates", [False, True])
def test_gae_bootstraps_from_the_true_final_observation(truncates: bool) -> None:
    class Env(Counter):
        def step(self, action: Any) -> Any:
            observation, reward, ended, _, info = super().step(action)
            return observation, reward, ended and not truncates, ended and truncates, info

    batch = VectorCollector([lambda: Env(2, draw=False)], frames_per_batch=3).collect()
    value = critic(2)
    with torch.no_grad():
        value.module.weight.copy_(torch.tensor([[0.0, 10.0]]))  # V: 10 times the step
        value.module.bias.zero_()
    batch = GAE(gamma=0.5, lmbda=0.0, value_network=value)(batch)
    # reward + gamma * following value - value; the final state is worth 20, the next start 0.
    last = 2 + 0.5 * 20 * truncates - 10
    expected = [1 + 0.5 * 10 - 0, last, 1 + 0.5 * 10 - 0]
    torch.testing.assert_close(batch["advantage"].flatten(), torch.tensor(expected))


def test_clip_ppo_loss_takes_a_batch() -> None:
    policy, value = actor(), critic()
    batch = VectorCollector("CartPole-v1", policy, num_envs=4, frames_per_batch=64).collect()
    GAE(gamma=0.99, lmbda=0.95, value_network=value)(batch)
    losses = ClipPPOLoss(policy, value)(batch.reshape(-1))
    assert losses["loss_objective"].isfinite()
    assert losses["kl_approx"].abs() < 1e-6  # the policy is still the one that collected
    losses["loss_objective"].backward()


def test_torchrl_own_trainer_runs_on_it() -> None:
    from torchrl.trainers import Trainer, UpdateWeights

    policy, value = actor(), critic()
    collector = VectorCollector(
        "CartPole-v1", policy, num_envs=4, frames_per_batch=32, total_frames=96
    )
    advantages = GAE(gamma=0.99, lmbda=0.95, value_network=value)
    loss = ClipPPOLoss(policy, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it deprecates parts of itself
        trainer = Trainer(
            collector=collector,
            total_frames=96,
            frame_skip=1,
            optim_steps_per_batch=2,
            loss_module=loss,
            optimizer=torch.optim.SGD(loss.parameters(), lr=0.01),
            progress_bar=False,
            seed=3,
        )
        trainer.register_op("batch_process", lambda batch: advantages(batch).reshape(-1))
        UpdateWeights(collector, 1).register(trainer)
        trainer.train()
    assert trainer.collected_frames == 96
    assert trainer._optim_count == 6
    assert collector.seed == 3
    with pytest.raises(RuntimeError, match="shut down"):  # the trainer did it
        collector.collect()
