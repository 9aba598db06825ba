"""A small run of TorchRL's trainer with its hooks, saved in each of its forms, and its parts."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torchrl.trainers as theirs
from torch import nn
from torchrl.checkpoint import Checkpoint
from torchrl.collectors import Collector
from torchrl.data import Categorical, LazyTensorStorage, PrioritizedSampler, TensorDictReplayBuffer
from torchrl.envs import GymEnv, StepCounter, TransformedEnv
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss

FORMS = ("torch", "memmap", "torchsnapshot", "directory", "archive")
HOOKS = (
    "clear_cuda_cache",
    "count_frames_log",
    "early_stopping",
    "lr_scheduler",
    "optimizer",
    "recorder",
    "replay_buffer",
    "reward_normalizer",
    "update_weights",
    "value_estimator",
)


def environment() -> TransformedEnv:
    return TransformedEnv(
        GymEnv("CartPole-v1", categorical_action_encoding=True), StepCounter(max_steps=7)
    )


class Parts:
    """What a trainer is made of, and the hooks that both trainers have."""

    def __init__(
        self,
        seed: int,
        module: Any,
        total_frames: int = 100,
        sampler: Any = None,
        length: int | None = None,  # of the sequences that are stored
    ) -> None:
        torch.manual_seed(seed)
        self.length = length
        actor = QValueActor(nn.Linear(4, 2), in_keys=["observation"], spec=Categorical(2))
        self.collector = Collector(
            GymEnv("CartPole-v1", categorical_action_encoding=True),
            actor,
            frames_per_batch=20,
            total_frames=total_frames,
            auto_register_policy_transforms=False,
        )
        self.loss = DQNLoss(actor, action_space="categorical", delay_value=True)
        self.optimizer = torch.optim.Adam(self.loss.parameters(), lr=1e-2)
        self.buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(200 if sampler else 60),  # the last 60 of 100
            sampler=sampler,
            batch_size=8,
            priority_key="td_error",
        )
        scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.estimator = torch.nn.BatchNorm1d(4)
        self.estimator.weight.data.normal_()
        self.hooks = {
            "replay_buffer": module.ReplayBufferTrainer(
                self.buffer, 8, flatten_tensordicts=length is None
            ),
            "clear_cuda_cache": module.ClearCudaCache(3),
            "count_frames_log": module.CountFramesLog(1),
            "reward_normalizer": module.RewardNormalizer(decay=0.9),
            "early_stopping": module.EarlyStopping(monitor="r", wait_for=0, patience=10**6),
            "lr_scheduler": module.LRSchedulerHook(scheduler),
            "update_weights": module.UpdateWeights(self.collector, 3),
            "recorder": module.LogValidationReward(
                record_interval=100,
                record_frames=3,
                policy_exploration=self.loss.value_network,
                environment=environment(),
            ),
        }
        self.arguments = {
            "collector": self.collector,
            "total_frames": total_frames,
            "frame_skip": 1,
            "optim_steps_per_batch": 3,
            "loss_module": self.loss,
            "optimizer": self.optimizer,
            "progress_bar": False,
        }

    def give_priorities(self) -> None:
        """Give each row another one."""
        rows = torch.arange(len(self.buffer))
        self.buffer.sampler.update_priority(rows, 0.1 + rows.float())

    def register(self, trainer: Any) -> Any:
        trainer.register_op("pre_steps_log", lambda td: {"r": float(td["next", "reward"].mean())})
        if self.length is not None:
            trainer.register_op("batch_process", lambda td: td.reshape(-1, self.length))
        for name, hook in self.hooks.items():
            hook.register(trainer, name)
        trainer.register_module("value_estimator", self.estimator)
        if isinstance(self.buffer.sampler, PrioritizedSampler):
            trainer.register_op("post_steps", self.give_priorities)
        return trainer


def their_trainer(parts: Parts, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parts.register(theirs.Trainer(**parts.arguments, **options))


def prioritized() -> PrioritizedSampler:
    return PrioritizedSampler(200, alpha=0.7, beta=0.5)


def save(form: str, path: Any, sampler: Any = None, length: int | None = None) -> Parts:
    """Train, save in one of the forms, and return the parts as they were then."""
    options = {}
    if form in ("directory", "archive"):
        options["checkpoint"] = Checkpoint(format=form)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("CKPT_BACKEND", "torch" if "checkpoint" in options else form)
        parts = Parts(0, theirs, sampler=sampler, length=length)
        options |= {"save_trainer_file": str(path), "save_trainer_interval": 10**6}
        their_trainer(parts, **options).train()
    return parts


def same(one, other) -> bool:
    if isinstance(one, torch.Tensor):
        return one.equal(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def same_priorities(one: Any, other: Any) -> bool:
    trees = [(b.sampler._sum_tree, b.sampler._min_tree) for b in (one, other)]
    rows = torch.arange(200)
    return all(a[rows].equal(b[rows]) for a, b in zip(*trees, strict=True))
