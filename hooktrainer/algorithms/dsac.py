"""Soft actor-critic for discrete actions."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ..networks import CategoricalPolicy
from ..objectives import DiscreteSACLoss
from ..run.config import Between, Count, Fraction, Needs, Number, Rate
from ..trainer import Trainer
from .algorithm import WithStochasticPolicy, algorithm
from .check_spaces import Actions
from .config import CARTPOLE, Settings
from .off_policy import ActorCriticOffPolicy
from .task import Task


@algorithm
class DSAC(ActorCriticOffPolicy, WithStochasticPolicy):
    """Soft actor-critic with a learned temperature, for one discrete action.

    Christodoulou, 2019, arXiv:1910.07207. The defaults solve CartPole.
    """

    num_envs: Count = 8
    steps_per_batch: Count = 8
    optim_steps_per_batch: Count = 32
    init_random_frames: Number = 1_000
    buffer_size: Count = 100_000
    batch_size: Count = 128
    lr: Rate = 1e-3
    """learning rate of all networks and of the temperature"""
    tau: Annotated[Fraction, Between(0.001, 0.1, log=True)] = 0.05
    """rate of the soft updates of the target networks, one per optimizer step"""
    alpha_init: float = 1.0
    """initial temperature, the weight of the entropy"""
    fixed_alpha: bool = False
    """whether the temperature is constant"""
    target_entropy_ratio: Annotated[Fraction, Needs("fixed_alpha", (False,))] = 0.3
    """entropy that the temperature is adapted to, relative to that of uniform actions; 0.98 in the
    paper"""
    policy_delay: Count = 1
    """optimizer steps per update of the policy and the temperature"""

    actions: ClassVar[Actions] = "discrete"
    tuned_for: ClassVar[Settings] = {
        "CartPole-v1": {"total_frames": 100_000, "eval_interval": 1_000, **CARTPOLE},
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        number, made = task.num_actions, self._networks_of(task)
        policy = CategoricalPolicy(
            made.network(number),
            made.in_keys,
            out_keys=["action"],
            action_mask_key=task.mask_key,
            trunk=made.shared,
        ).to(task.device)
        loss_module = DiscreteSACLoss(
            policy,
            [task.action_values(made) for _ in range(2)],
            number,
            loss_function="l2",
            alpha_init=self.alpha_init,
            fixed_alpha=self.fixed_alpha,
            target_entropy_ratio=self.target_entropy_ratio,
            policy_delay=self.policy_delay,
            **self._loss_options(),
        ).to(task.device)
        optimizer = self._optimizer(loss_module) if self.policy_delay > 1 else None
        trainer = self._trainer(task, loss_module, policy, optimizer=optimizer)
        return task.finish(trainer, policy)
