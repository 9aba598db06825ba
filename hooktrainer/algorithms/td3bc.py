"""TD3 with behavior cloning."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from ..loop.cadence import Every
from ..objectives import TD3BCLoss
from ..run.config import Between, Rate
from ..trainer import Trainer
from .algorithm import algorithm
from .config import Settings
from .offline import PENDULUM, OfflineValues
from .task import Task


@algorithm
class TD3BC(OfflineValues):
    """TD3 with behavior cloning, offline, for continuous actions.

    Fujimoto and Gu, 2021, arXiv:2106.06860, on normalized observations. The defaults are the
    paper's, made for larger tasks than Pendulum.
    """

    lr: Rate = 3e-4
    normalize_observations: bool = True
    alpha: Annotated[float, Between(0.5, 10.0, log=True)] = 2.5
    """weight of the values of the policy's actions, against the distance to the data's"""
    policy_delay: int = 2
    """optimizer steps per update of the actor and of the target networks"""
    policy_noise: float = 0.2
    """standard deviation of the noise on target actions, for actions scaled to [-1, 1]"""
    noise_clip: float = 0.5
    """bound of that noise, for actions scaled to [-1, 1]"""

    tuned_for: ClassVar[Settings] = {
        "Pendulum-v1": PENDULUM | {"num_cells": (128, 128), "lr": 1e-3, "alpha": 20.0},
    }

    def _trained(self, loss_module: TD3BCLoss) -> Any:
        # The actor has a gradient only at every policy_delay-th step.
        networks = loss_module.actor_network, loss_module.qvalue_network
        return [{"params": list(network.parameters())} for network in networks]

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        actor = task.deterministic_policy()
        loss_module = TD3BCLoss(
            actor,
            task.qvalue(),
            alpha=self.alpha,
            policy_delay=self.policy_delay,
            policy_noise=self.policy_noise,
            noise_clip=self.noise_clip,
            gamma=self.gamma,
            loss_function="l2",
        )
        updater = self._updater(loss_module, every=Every(optim_steps=self.policy_delay))
        return self._trainer(task, loss_module, actor, updater)
