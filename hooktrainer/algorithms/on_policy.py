"""What PPO, A2C and REINFORCE share: they learn from what the present policy collects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from ..hooks import MiniBatches, ObservationNormalizer, RewardScaler, Schedule, ValueEstimatorHook
from ..networks import (
    CategoricalPolicy,
    DiagonalGaussianPolicy,
    RunningNorm,
    ValueNetwork,
    orthogonal_init,
)
from ..objectives import GAE, ClipPPOLoss
from ..optim import FlatAdam
from ..run.fields import Count, Fraction, Rate
from ..trainer import Trainer
from .algorithm import Algorithm
from .check_spaces import Actions
from .task import Task

Actor = CategoricalPolicy | DiagonalGaussianPolicy


@dataclass(frozen=True, kw_only=True)
class OnPolicy(Algorithm):
    """Fields of the algorithms that learn from what the present policy collects."""

    num_envs: Count = 16
    """number of parallel environments"""
    steps_per_batch: Count = 64
    """steps per environment in each batch"""
    lr: Rate = 3e-3
    """initial learning rate"""
    anneal_lr: bool = True
    """whether the learning rate falls linearly to zero at total_frames"""
    log_std: float = 0.0
    """initial log standard deviation of continuous actions"""
    clip_actions: bool = True
    """whether the environment clips continuous actions to their bounds"""
    normalize_observations: bool = False
    """whether the networks see observations of running mean 0 and variance 1"""
    scale_rewards: bool = False
    """whether rewards are divided by the running standard deviation of the discounted return"""
    gamma: Fraction = 0.99
    """discount factor"""
    entropy_coeff: float = 0.0
    """weight of the entropy bonus"""
    critic_coeff: float = 0.5
    """weight of the value loss"""
    max_grad_norm: float | None = 0.5
    """the gradient is clipped to this norm; None for no clipping"""

    actions: ClassVar[Actions] = "any"

    def clips(self) -> bool:
        """Whether the environment clips continuous actions."""
        return self.clip_actions

    def _networks(self, task: Task) -> tuple[Actor, ValueNetwork, RunningNorm | None]:
        """The policy, the critic, and the normalization of observations that they share."""
        norm = RunningNorm(task.observation_features) if self.normalize_observations else None

        def network(outputs: int, **gains: float) -> nn.Sequential:
            made: nn.Sequential = orthogonal_init(task.network(outputs, nn.Tanh), **gains)
            return made if norm is None else nn.Sequential(norm, made)

        mean_or_logits = network(task.action_features, output_gain=0.01)
        critic = ValueNetwork(network(1))
        actor: Actor
        if task.discrete:
            actor = CategoricalPolicy(mean_or_logits)
        else:
            actor = DiagonalGaussianPolicy(
                mean_or_logits, task.action_features, log_std=self.log_std
            )
        return actor.to(task.device), critic.to(task.device), norm

    def _trainer(
        self,
        task: Task,
        *,
        lmbda: float,
        clip_epsilon: float = 0.2,
        num_epochs: int = 1,
        mini_batch_size: int | None = None,
    ) -> Trainer:
        """The trainer of all of them.

        Without mini-batches a batch is one optimizer step. Then nothing is ever clipped, and the
        gradient is that of the policy gradient theorem.
        """
        actor, critic, norm = self._networks(task)
        loss_module = ClipPPOLoss(
            actor,
            critic,
            clip_epsilon=clip_epsilon,
            entropy_coeff=self.entropy_coeff,
            critic_coeff=self.critic_coeff,
            loss_critic_type="l2",
            normalize_advantage=True,
            diagnostics=4,  # entropy, clip fraction and so on at every fourth step
        ).to(task.device)
        optimizer = FlatAdam(loss_module.parameters(), lr=self.lr, eps=1e-5)
        hooks: list[Any] = [
            ValueEstimatorHook(GAE(gamma=self.gamma, lmbda=lmbda, value_network=critic))
        ]
        if self.scale_rewards:
            hooks.insert(0, RewardScaler(self.gamma))
        if norm is not None:
            hooks.insert(0, ObservationNormalizer(norm))
        if mini_batch_size is not None:
            hooks.append(MiniBatches(mini_batch_size, loss_module.in_keys))
        if self.anneal_lr:
            hooks.append(Schedule.linear(optimizer, "lr", self.lr, 0.0))
        trainer = task.trainer(
            task.collector(actor, self.num_envs, self.steps_per_batch),
            loss_module,
            optimizer,
            num_epochs=num_epochs,
            optim_steps_per_batch=1 if mini_batch_size is None else None,
            clip_norm=self.max_grad_norm,
        )
        for hook in hooks:
            hook.register(trainer)
        return task.finish(trainer, actor)
