"""What PPO, A2C and REINFORCE share: they learn from what the present policy collects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch

from ..base.space_parts import CRITIC
from ..errors import ConfigError
from ..hooks import KLAdaptiveLR, MiniBatches, RewardScaler, Schedule, ValueEstimatorHook
from ..networks import (
    ActionDistribution,
    MemoryTrunk,
    Policy,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
    ValueNetwork,
    distribution_for,
    orthogonal_init,
)
from ..objectives import GAE, ClipPPOLoss
from ..optim import FlatAdam
from ..run.config import Between, Count, Fraction, OneOf, Rate
from ..trainer import Trainer
from .algorithm import WithMemory, WithStateDependentExploration
from .check_spaces import Actions, check_distribution, check_state_dependent
from .task import Task

CARTPOLE = {
    "total_frames": 300_000,
    "eval_interval": 10_000,
    "eval_episodes": 100,
    "stop_at": 475.0,
}
"""Settings of A2C and REINFORCE tuned for CartPole."""


@dataclass(frozen=True, kw_only=True)
class OnPolicy(WithMemory, WithStateDependentExploration):
    """Fields of the algorithms that learn from what the present policy collects."""

    num_envs: Count = 16
    """number of parallel environments"""
    steps_per_batch: Count = 64
    """steps per environment in each batch"""
    lr: Annotated[Rate, Between(1e-4, 3e-2, log=True)] = 3e-3
    """initial learning rate"""
    anneal_lr: bool = True
    """whether the learning rate falls linearly to zero at total_frames"""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu", "leaky_relu"] = "tanh"
    share_network: bool | None = None
    """whether policy and value share all but their last layers; None: if there are images"""
    action_distribution: Literal["gaussian", "squashed", "beta"] = "gaussian"
    """of continuous actions: a normal one, one squashed into the bounds by tanh, or Beta"""
    log_std: float = 0.0
    """initial log standard deviation of gaussian actions; with sde, of noise weights"""
    clip_actions: bool = True
    """whether the environment clips gaussian actions to their bounds"""
    scale_rewards: bool | None = None
    """whether rewards are divided by the deviation of the return; None: if there is a memory"""
    gamma: Annotated[Fraction, OneOf((0.9, 0.95, 0.98, 0.99, 0.995, 0.999))] = 0.99
    """discount factor"""
    entropy_coeff: Annotated[float, Between(0.0, 0.05)] = 0.0
    """weight of the entropy bonus"""
    critic_coeff: float = 0.5
    """weight of the value loss"""
    max_grad_norm: float | None = 0.5
    """the gradient is clipped to this norm; None for no clipping"""

    actions: ClassVar[Actions] = "any"

    def clips(self) -> bool:
        """Whether the environment clips continuous actions."""
        return self.clip_actions and self.action_distribution == "gaussian"

    def _networks(self, task: Task, exact_kl: bool) -> tuple[Policy, ValueNetwork]:
        """The policy, which may write what its divergence is computed from, and the critic."""
        check_distribution(task.name, task.env_name, task.action_space, self.action_distribution)
        shares, gain = self.share_network, math.sqrt(2.0)
        if task.is_asymmetric and shares:
            raise ConfigError(
                f"{self.name()}: share_network=True, but the observations of {task.env_name} have "
                f"{CRITIC!r}, which the value alone sees: leave one of the two out."
            )
        if self.memory is not None and shares is False and not task.is_asymmetric:
            raise ConfigError(
                f"{self.name()}: share_network=False, but policy and value have one memory: leave "
                "one of the two out."
            )
        made = self._networks_of(task)
        if isinstance(made.shared, MemoryTrunk):
            orthogonal_init(made.shared.encoder, output_gain=gain)
        elif not task.is_asymmetric and (made.has_images if shares is None else shares):
            trunk, features = made.trunk()
            orthogonal_init(trunk, output_gain=gain)
            made = made.after(trunk, features, made.in_keys, hidden=False)
        if self.sde:
            network, features = made.trunk()
            distribution: ActionDistribution = self._following_the_state(task, features)
            orthogonal_init(network, output_gain=gain)
        else:
            distribution = distribution_for(
                task.action_space, self.action_distribution, self.log_std
            )
            network = orthogonal_init(
                made.network(distribution.parameter_features), output_gain=0.01
            )
        writes = ["action", "action_log_prob", *(distribution.kl_keys if exact_kl else ())]
        actor = Policy(network, distribution, made.in_keys, writes, task.mask_key, made.shared)
        if task.is_asymmetric:
            critic = task.value()
        else:
            critic = ValueNetwork(made.network(1), made.in_keys, trunk=made.shared)
        orthogonal_init(critic.network)
        return actor.to(task.device), critic.to(task.device)

    def _following_the_state(self, task: Task, features: int) -> ActionDistribution:
        """The distribution of a policy whose noise follows its features."""
        check_state_dependent(task.name, task.env_name, task.action_space, self.action_distribution)
        shape, low, high = task.bounds()
        distribution = (
            StateDependentGaussian(features, shape, self.log_std)
            if self.action_distribution == "gaussian"
            else SquashedStateDependentGaussian(features, shape, low, high, self.log_std)
        )
        orthogonal_init(distribution.mean, output_gain=0.01)
        return distribution

    def _sequences(self, mini_batch_size: int, length: int) -> int:
        """Return the sequences per mini-batch; raise ConfigError if they do not fit."""
        wholes = {"steps_per_batch": self.steps_per_batch, "mini_batch_size": mini_batch_size}
        for name, whole in wholes.items():
            if whole % length:
                raise ConfigError(
                    f"{self.name()}: {name}={whole} is no multiple of a sequence's {length} steps: "
                    "give a sequence_length that divides steps_per_batch and mini_batch_size."
                )
        return mini_batch_size // length

    def _trainer(
        self,
        task: Task,
        *,
        lmbda: float,
        clip_epsilon: float = 0.2,
        desired_kl: float | None = None,
        num_epochs: int = 1,
        mini_batch_size: int | None = None,
        sequence_length: int | None = None,
    ) -> Trainer:
        """Build the trainer that all on-policy algorithms share."""
        actor, critic = self._networks(task, exact_kl=desired_kl is not None)
        loss_module = ClipPPOLoss(
            actor,
            critic,
            clip_epsilon=clip_epsilon,
            entropy_coeff=self.entropy_coeff,
            critic_coeff=self.critic_coeff,
            loss_critic_type="l2",
            normalize_advantage=True,
            diagnostics=4,  # entropy, clip fraction and so on at every fourth step
            kl=desired_kl is not None,
        ).to(task.device)
        optimizer = FlatAdam(loss_module.parameters(), lr=self.lr, eps=1e-5)
        scales = self.memory is not None if self.scale_rewards is None else self.scale_rewards
        hooks: list[Any] = [RewardScaler(self.gamma)] if scales else []
        hooks.append(ValueEstimatorHook(GAE(gamma=self.gamma, lmbda=lmbda, value_network=critic)))
        if mini_batch_size is not None:
            size, steps = mini_batch_size, sequence_length or self.steps_per_batch
            if self.memory is not None:
                size = self._sequences(mini_batch_size, steps)
            sequences = self.memory is not None and steps
            hooks.append(MiniBatches(size, loss_module.in_keys, sequences=sequences))
        if desired_kl is not None:
            hooks.append(KLAdaptiveLR(optimizer, desired_kl))
        elif self.anneal_lr:
            hooks.append(Schedule.linear(optimizer, "lr", self.lr, 0.0))
        trainer = task.trainer(
            task.collector(self._explores(actor), self.num_envs, self.steps_per_batch),
            loss_module,
            optimizer,
            num_epochs=num_epochs,
            optim_steps_per_batch=1 if mini_batch_size is None else None,
            clip_norm=self.max_grad_norm,
        )
        for hook in hooks:
            hook.register(trainer)
        if desired_kl is None and not self.anneal_lr:
            trainer.register_op("pre_steps_log", partial(log_rate, optimizer))
        return task.finish(trainer, actor)


def log_rate(optimizer: torch.optim.Optimizer, batch: Any) -> dict[str, Any]:
    """Metric: a learning rate that no schedule changes, or logs."""
    return {"train/lr": optimizer.param_groups[0]["lr"]}
