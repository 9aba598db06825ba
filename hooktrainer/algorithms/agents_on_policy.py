"""What MAPPO and IPPO share: they learn from what the present policies of all agents collect."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from gymnasium import spaces

from ..hooks import MiniBatches, Schedule, ValueEstimatorHook
from ..networks import AgentsPolicy
from ..objectives import GAE, ClipPPOLoss, LossByGroup, keys_of
from ..optim import FlatAdam
from ..run.fields import Between, Count, Fraction, Number, Rate
from ..trainer import Trainer
from .agents_config import SeveralAgents
from .agents_task import AgentsTask
from .check_spaces import Actions, check_distribution
from .on_policy import log_rate


@dataclass(frozen=True, kw_only=True)
class AgentsOnPolicy(SeveralAgents):
    """Fields of MAPPO and IPPO."""

    num_envs: Count = 64
    """number of parallel environments"""
    steps_per_batch: Count = 100
    """steps per environment in each batch"""
    num_epochs: Count = 5
    """epochs over each batch"""
    mini_batch_size: Count = 800
    """steps of an environment in each mini-batch, each with all of its agents"""
    lr: Annotated[Rate, Between(1e-4, 1e-2, log=True)] = 1e-3
    """initial learning rate"""
    anneal_lr: bool = True
    """whether the learning rate falls linearly to zero at total_frames"""
    eval_interval: Count = 20_000
    eval_episodes: Number = 32
    num_cells: tuple[Count, ...] = (128, 128)
    action_distribution: Literal["gaussian", "squashed", "beta"] = "gaussian"
    """of continuous actions: normal and clipped to the bounds, squashed into them, or Beta"""
    log_std: float = 0.0
    """initial log standard deviation of gaussian actions"""
    gamma: Fraction = 0.99
    """discount factor"""
    lmbda: Fraction = 0.95
    """lambda of generalized advantage estimation"""
    clip_epsilon: float = 0.2
    """clipping range of the probability ratio around 1"""
    entropy_coeff: float = 0.0
    """weight of the entropy bonus"""
    critic_coeff: float = 0.5
    """weight of the value loss"""
    max_grad_norm: float | None = 0.5
    """the gradient is clipped to this norm; None for no clipping"""

    actions: ClassVar[Actions] = "any"
    central_critic: ClassVar[bool]

    def build(self, task: AgentsTask) -> Trainer:
        """Wire the trainer."""
        policies, losses, hooks = {}, {}, []
        actions = spaces.Tuple([group.action_space for group in task.groups])
        check_distribution(task.name, task.env_name, actions, self.action_distribution)
        for group in task.groups:
            name = group.name
            actor = task.policy(group, self.action_distribution, self.log_std)
            critic = task.value(group, self.central_critic)
            loss = ClipPPOLoss(
                actor,
                critic,
                clip_epsilon=self.clip_epsilon,
                entropy_coeff=self.entropy_coeff,
                critic_coeff=self.critic_coeff,
                loss_critic_type="l2",
                normalize_advantage=True,
                diagnostics=4,
            )
            written = keys_of(name, "advantage", "value_target")
            loss.set_keys(
                action=(name, "action"),
                sample_log_prob=(name, "action_log_prob"),
                value=(name, "state_value"),
                mask=task.mask(group),
                **written,
            )
            gae = GAE(gamma=self.gamma, lmbda=self.lmbda, value_network=critic)
            gae.set_keys(
                value=(name, "state_value"),
                **keys_of(name, "reward", "done", "terminated"),
                **written,
            )
            hooks.append((f"value_estimator_{name}", ValueEstimatorHook(gae)))
            policies[name], losses[name] = actor, loss
        policy = AgentsPolicy(policies)
        loss_module = LossByGroup(losses).to(task.device)
        optimizer = FlatAdam(loss_module.parameters(), lr=self.lr, eps=1e-5)
        trainer = task.trainer(
            task.collector(policy, self.num_envs, self.steps_per_batch),
            loss_module,
            optimizer,
            num_epochs=self.num_epochs,
            optim_steps_per_batch=None,
            clip_norm=self.max_grad_norm,
        )
        others: list[Any] = [MiniBatches(self.mini_batch_size, loss_module.in_keys)]
        if self.anneal_lr:
            others.append(Schedule.linear(optimizer, "lr", self.lr, 0.0))
        else:
            trainer.register_op("pre_steps_log", partial(log_rate, optimizer))
        for name, hook in hooks:
            hook.register(trainer, name)
        for other in others:
            other.register(trainer)
        return task.finish(trainer, policy)
