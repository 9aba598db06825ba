"""The base of PPO, TRPO, A2C, REINFORCE, MAPPO and IPPO: learning from the policy's own batches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from gymnasium.spaces import Space
from tensordict import NestedKey
from torch import nn

from ..base.space_parts import CRITIC
from ..errors import ConfigError
from ..hooks import KLAdaptiveLR, MiniBatches, RewardScaler, Schedule, ValueEstimatorHook
from ..networks import (
    ActionDistribution,
    MemoryTrunk,
    NetworkFactory,
    Policy,
    SquashedStateDependentGaussian,
    StateDependentExploration,
    StateDependentGaussian,
    ValueNetwork,
    distribution_for,
    orthogonal_init,
)
from ..objectives import GAE, ClipPPOLoss, VTrace
from ..objectives.common import Loss
from ..optim import FlatAdam
from ..run.config import Between, Count, Fraction, OneOf, Rate
from ..trainer import Trainer
from .algorithm import WithMemory, WithStateDependentExploration, WithStochasticPolicy
from .check_spaces import Actions, check_distribution
from .config import Activation
from .task import RunTask, Task

_HIDDEN_GAIN = math.sqrt(2.0)  # of the last shared layer, which is a hidden one


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(WithStochasticPolicy):
    """Fields of the algorithms that learn from batches of the current policies."""

    num_envs: Count = 16
    """number of parallel environments"""
    steps_per_batch: Count = 64
    """steps per environment in each batch"""
    lr: Annotated[Rate, Between(1e-4, 3e-2, log=True)] = 3e-3
    """initial learning rate"""
    anneal_lr: bool = True
    """whether the learning rate falls linearly to zero at total_frames"""
    action_distribution: Literal["gaussian", "squashed", "beta"] = "gaussian"
    """distribution of continuous actions: normal, squashed into their bounds by tanh, or Beta"""
    log_std: float = 0.0
    """initial log standard deviation of gaussian actions; with sde, of noise weights"""
    gamma: Annotated[Fraction, OneOf((0.9, 0.95, 0.98, 0.99, 0.995, 0.999))] = 0.99
    """discount factor"""
    entropy_coeff: Annotated[float, Between(0.0, 0.05)] = 0.0
    """weight of the entropy bonus"""
    critic_coeff: float = 0.5
    """weight of the value loss"""
    max_grad_norm: float | None = 0.5
    """the gradient is clipped to this norm; None for no clipping"""

    actions: ClassVar[Actions] = "any"

    # What only some algorithms have as a field.
    normalize_advantage = True
    num_epochs = 1
    clip_epsilon = 0.2
    clip_value = None  # type: float | None
    dual_clip = None  # type: float | None
    desired_kl = None  # type: float | None

    def _loss(self, actor: Policy, critic: ValueNetwork) -> Loss:
        return ClipPPOLoss(
            actor,
            critic,
            clip_epsilon=self.clip_epsilon,
            entropy_coeff=self.entropy_coeff,
            critic_coeff=self.critic_coeff,
            loss_critic_type="l2",
            normalize_advantage=self.normalize_advantage,
            clip_value=self.clip_value,
            dual_clip=self.dual_clip,
            diagnostics=4,  # entropy, clip fraction and so on at every fourth step
            kl=self.desired_kl is not None,
        )

    def _check_distribution(self, task: RunTask, space: Space[Any], sde: bool = False) -> None:
        defaults = type(self).log_std, self.tuned_settings().get("log_std")
        log_std = 0.0 if self.log_std in defaults else self.log_std
        check_distribution(task.name, task.env_name, space, self.action_distribution, sde, log_std)

    def _trained(self, loss_module: Any) -> Iterable[nn.Parameter]:
        """The parameters of the optimizer."""
        return loss_module.parameters()

    def _wired(
        self, task: RunTask, policy: Any, loss_module: nn.Module, hooks: Mapping[str, Any]
    ) -> Trainer:
        """The trainer of a loss; with mini-batches among the hooks, an epoch goes through all."""
        optimizer = FlatAdam(self._trained(loss_module), lr=self.lr, eps=1e-5)
        trainer = task.trainer(
            task.collector(policy, self.num_envs, self.steps_per_batch),
            loss_module,
            optimizer,
            num_epochs=self.num_epochs,
            optim_steps_per_batch=None if "mini_batches" in hooks else 1,
            clip_norm=self.max_grad_norm,
        )
        for name, hook in hooks.items():
            hook.register(trainer, name)
        if self.desired_kl is not None:
            KLAdaptiveLR(optimizer, self.desired_kl).register(trainer)
        else:
            schedule_rate(self, trainer, optimizer)
        return trainer


def schedule_rate(run: Any, trainer: Trainer, optimizer: torch.optim.Optimizer) -> None:
    """Anneal the learning rate to zero if ``anneal_lr`` is set, and log it."""
    if run.anneal_lr:
        Schedule.linear(optimizer, "lr", run.lr, 0.0).register(trainer)
    else:
        trainer.register_op("pre_steps_log", partial(_log_rate, optimizer))


def _log_rate(optimizer: torch.optim.Optimizer, batch: Any) -> dict[str, Any]:
    return {"train/lr": optimizer.param_groups[0]["lr"]}


@dataclass(frozen=True, kw_only=True)
class OnPolicy(PolicyGradient, WithMemory, WithStateDependentExploration):
    """Fields of PPO, TRPO, A2C and REINFORCE."""

    activation: Activation = "tanh"
    share_network: bool | None = None
    """whether policy and value share all but their last layers; None: if there are images"""
    clip_actions: bool = True
    """whether the environment clips gaussian actions to their bounds"""
    scale_rewards: bool | None = None
    """whether rewards are divided by the deviation of the return; None: if there is a memory"""
    value_estimator: Literal["gae", "vtrace"] = "gae"
    """estimator of advantages; vtrace corrects for batches that an older policy collected"""

    # What only PPO, TRPO and, of these, A2C have as a field.
    lmbda = 1.0
    mini_batch_size = 0  # the whole batch
    sequence_length = None  # type: int | None

    def _networks(self, task: Task) -> tuple[Policy, ValueNetwork]:
        """The policy and the critic."""
        self._check_distribution(task, task.action_space, self.sde)
        made = self._after_trunk(task)
        network, distribution = self._actor_layers(task, made)
        writes = ["action", "action_log_prob"]
        if self.desired_kl is not None:  # what the divergence is computed from
            writes += distribution.kl_keys
        actor = Policy(network, distribution, made.in_keys, writes, task.mask_key, made.shared)
        if task.is_asymmetric:
            critic = task.value()
        else:
            critic = ValueNetwork(made.network(1), made.in_keys, trunk=made.shared)
        orthogonal_init(critic.network)
        return actor.to(task.device), critic.to(task.device)

    def _after_trunk(self, task: Task) -> NetworkFactory:
        """The factory of policy and value, after the layers that they share, if any."""
        shares = self.share_network
        problem, advice = None, "leave share_network out"
        if task.is_asymmetric and shares:
            problem = f"{task.env_name} has observations {CRITIC!r}, which the value alone sees"
        elif self.memory is not None and shares is False and not task.is_asymmetric:
            problem = "policy and value have one memory"
            advice = f"set memory=None, or {advice}"
        if problem is not None:
            raise ConfigError(f"{self.name()}: share_network={shares}, but {problem}: {advice}.")
        made = self._networks_of(task)
        if isinstance(made.shared, MemoryTrunk):
            orthogonal_init(made.shared.encoder, output_gain=_HIDDEN_GAIN)
        elif not task.is_asymmetric and (made.has_images if shares is None else shares):
            trunk, features = made.trunk()
            orthogonal_init(trunk, output_gain=_HIDDEN_GAIN)
            made = made.after(trunk, features, made.in_keys, hidden=False)
        return made

    def _actor_layers(
        self, task: Task, made: NetworkFactory
    ) -> tuple[nn.Module, ActionDistribution]:
        """The policy's network, and the distribution of its actions."""
        if not self.sde:
            kind = self.action_distribution
            distribution = distribution_for(task.action_space, kind, self.log_std)
            network = made.network(distribution.parameter_features)
            return orthogonal_init(network, output_gain=0.01), distribution
        network, features = made.trunk()
        shape, low, high = task.bounds()
        if self.action_distribution == "gaussian":
            exploring = StateDependentGaussian(features, shape, self.log_std)
        else:
            exploring = SquashedStateDependentGaussian(features, shape, low, high, self.log_std)
        orthogonal_init(exploring.mean, output_gain=0.01)
        return orthogonal_init(network, output_gain=_HIDDEN_GAIN), exploring

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        actor, critic = self._networks(task)
        loss_module = self._loss(actor, critic).to(task.device)
        hooks: dict[str, Any] = {}
        if scales_rewards(self):
            hooks["reward_scaler"] = RewardScaler(self.gamma)
        given: dict[str, Any] = {"gamma": self.gamma, "lmbda": self.lmbda, "value_network": critic}
        vtrace = self.value_estimator == "vtrace"
        estimator = VTrace(**given, actor_network=actor) if vtrace else GAE(**given)
        hooks["value_estimator"] = ValueEstimatorHook(estimator)
        if self.mini_batch_size:
            hooks["mini_batches"] = mini_batches(self, loss_module.in_keys)
        explores = StateDependentExploration(actor, self.sde_interval) if self.sde else actor
        return task.finish(self._wired(task, explores, loss_module, hooks), actor)


# -- Reward scaling and mini-batches, which depend on the memory.


def scales_rewards(run: Any) -> bool:
    """Whether rewards are scaled; by default if there is a memory."""
    return run.memory is not None if run.scale_rewards is None else run.scale_rewards


def mini_batches(run: Any, keys: Sequence[NestedKey]) -> MiniBatches:
    """Return the hook that splits a batch into steps or, with a memory, into sequences."""
    if run.memory is None:
        return MiniBatches(run.mini_batch_size, keys)
    length = run.sequence_length or min(run.steps_per_batch, run.mini_batch_size)
    if run.steps_per_batch % length or run.mini_batch_size % length:
        raise ConfigError(
            f"{run.name()}: sequence_length={length} has to divide steps_per_batch="
            f"{run.steps_per_batch} and mini_batch_size={run.mini_batch_size}."
        )
    return MiniBatches(run.mini_batch_size // length, keys, sequences=length)
