"""Parallelized Q-learning."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ..hooks import RewardScaler, ValueEstimatorHook
from ..networks import EpsilonGreedy, MemoryTrunk, QNetwork, add_layer_norms
from ..objectives import PQNLoss, QLambda
from ..optim import FlatAdam
from ..run.config import Between, Count, Fraction, Needs, OneOf, Rate
from ..trainer import Trainer
from .algorithm import WithMemory, algorithm
from .check_spaces import Actions
from .config import CARTPOLE, Settings
from .on_policy import mini_batches, schedule_rate
from .task import Task


@algorithm
class PQN(WithMemory):
    """Parallelized Q-learning, for one discrete action.

    Gallici et al., 2024, arXiv:2407.04811: deep Q-learning of Q(lambda) returns from many
    environments, with layer norms in place of a replay buffer and a target network. The defaults
    solve CartPole.
    """

    num_envs: Count = 32
    """number of parallel environments"""
    steps_per_batch: Count = 32
    """steps per environment in each batch"""
    num_epochs: Count = 4
    """epochs over each batch"""
    mini_batch_size: Count = 64
    """frames in each mini-batch"""
    lr: Annotated[Rate, Between(1e-4, 1e-2, log=True)] = 1e-3
    """initial learning rate"""
    anneal_lr: bool = True
    """whether the learning rate falls linearly to zero at total_frames"""
    gamma: Annotated[Fraction, OneOf((0.9, 0.95, 0.98, 0.99, 0.995))] = 0.99
    """discount factor"""
    lmbda: Annotated[Fraction, Between(0.0, 1.0)] = 0.95
    """lambda of the returns: 0 for one-step targets, 1 for Monte-Carlo returns"""
    eps_end: Annotated[Fraction, Between(0.01, 0.2, log=True)] = 0.05
    """final epsilon, the probability of a random action"""
    annealing_frames: Count = 20_000
    """frames over which epsilon falls linearly from 1 to eps_end"""
    max_grad_norm: float | None = 10.0
    """the gradient is clipped to this norm; None for no clipping"""
    num_cells: tuple[Count, ...] = (128, 128)
    layer_norm: bool = True
    """whether hidden layers are normalized, without which values may diverge"""
    scale_rewards: bool = False
    """whether rewards are divided by the running standard deviation of the discounted return"""
    sequence_length: Annotated[Count | None, Needs("memory")] = None
    """with a memory, steps of the sequences that make up a mini-batch; None for steps_per_batch, or
    mini_batch_size if that is less"""

    actions: ClassVar[Actions] = "discrete"
    tuned_for: ClassVar[Settings] = {
        "CartPole-v1": {"total_frames": 300_000, "eval_interval": 5_000, **CARTPOLE},
        # For little time: without the paper's convolutions, and with larger mini-batches.
        "*MinAtar[/-]*": {
            "total_frames": 1_000_000,
            "num_envs": 128,
            "num_epochs": 2,
            "mini_batch_size": 512,
            "lr": 2e-3,
            "lmbda": 0.65,
            "network": "flat",
            "num_cells": (128, 64),
            "annealing_frames": 250_000,
            "eval_interval": 250_000,
            "eval_episodes": 20,
            "log_interval": 20_000,
            "save_interval": 250_000,
        },
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        made = self._networks_of(task)
        network = made.network(task.num_actions)
        if self.layer_norm:
            add_layer_norms(network)
            if isinstance(made.shared, MemoryTrunk):
                add_layer_norms(made.shared.encoder)
        q_network = QNetwork(network, made.in_keys, task.mask_key, made.shared).to(task.device)
        policy = EpsilonGreedy(
            q_network, eps_end=self.eps_end, annealing_num_steps=self.annealing_frames
        )
        loss_module = PQNLoss(q_network)
        optimizer = FlatAdam(loss_module.parameters(), lr=self.lr)
        trainer = task.trainer(
            task.collector(policy, self.num_envs, self.steps_per_batch),
            loss_module,
            optimizer,
            num_epochs=self.num_epochs,
            optim_steps_per_batch=None,
            clip_norm=self.max_grad_norm,
        )
        if self.scale_rewards:
            RewardScaler(self.gamma).register(trainer)
        returns = QLambda(gamma=self.gamma, lmbda=self.lmbda, value_network=q_network)
        ValueEstimatorHook(returns).register(trainer)
        mini_batches(self, loss_module.in_keys).register(trainer)
        schedule_rate(self, trainer, optimizer)
        return task.finish(trainer, q_network)
